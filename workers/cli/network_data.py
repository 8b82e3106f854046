"""The options that say where a network's rows are and which client each belongs to."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from workers.cli.data_options import DATA, roles_of, table_options, with_options

if TYPE_CHECKING:
    from workers.data.opening import Progress
    from workers.registration.network_source import Source

# As in workers.registration.network_source, which loads numerical libraries: too slow for
# --help.
FORMATS = ("npz", "masks", "table")

_CLIENTS = (
    click.option(
        "--deal",
        type=click.IntRange(min=2),
        metavar="CLIENTS",
        help="Deal rows without clients to N clients, for experiments.",
    ),
    click.option(
        "--alpha",
        type=click.FloatRange(min=0, min_open=True),
        help="With --deal: Dirichlet parameter over labels. Default: uniformly at random.",
    ),
    click.option(
        "--at-least",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="ROWS",
        help="Omit clients with fewer rows.",
    ),
    click.option(
        "--draw",
        type=click.IntRange(min=1),
        metavar="CLIENTS",
        help="Sample N named clients, by the seed. Default: all.",
    ),
)
_DATA = (
    click.argument("data", type=DATA),
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        help="npz: inputs, labels, clients (records, subjects, identity_KIND), or train_images,"
        " train_labels (train_clients, train_identity_KIND). masks: images/SITE/NAME.png, "
        "masks/SITE/NAME.png. table: columns of "
        "numbers. Default: detected from DATA.",
    ),
    table_options(sql=False),
    *_CLIENTS,
    click.option(
        "--class",
        "classes",
        multiple=True,
        metavar="NAME",
        help="Name of a class, in order from 0, for data without names; required for masks.",
    ),
    click.option(
        "--mask-value",
        "mask_values",
        multiple=True,
        type=click.IntRange(0, 255),
        help="Grey value of each --class in masks. Default: the class's number.",
    ),
)


# For a network's rows.
data_options = with_options(_DATA)


def source_of(
    options: Mapping[str, Any], seed: int, progress: "Progress" = lambda done, total: None
) -> "Source":
    """Return the source of the rows by the options' values; seed: deals and draws clients.

    Raises DatasetError as `roles_of`.
    """
    from workers.data.owners import Ownership
    from workers.registration.network_source import Source

    return Source(
        path=options["data"],
        form=options["form"],
        owners=Ownership(
            deal=options["deal"],
            alpha=options["alpha"],
            at_least=options["at_least"],
            draw=options["draw"],
            seed=seed,
        ),
        classes=options["classes"],
        mask_values=options["mask_values"],
        roles=roles_of(options),
        progress=progress,
    )
