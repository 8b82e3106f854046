"""`lethe round`: open masked rounds as an operator, join them as a client."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.cli.options import FILE, operator_token, plain, reading_token, service_url
from workers.cli.data_options import DATA, read_rows, table_options

if TYPE_CHECKING:
    from workers.secure_sum.client.service import RoundClient


@click.group("round")
def round_() -> None:
    """Masked rounds: reveal only the sum of all members' statistics."""


@round_.command("open")
@service_url
@operator_token
@click.option("--model", required=True, help="Reference of a masked model.")
@click.option(
    "--member", "members", multiple=True, required=True, help="Keyid of a member; repeatable."
)
@click.option(
    "--threshold",
    type=int,
    help="Minimum number of surviving members. Default: a strict majority.",
)
@click.option("--step-seconds", type=int, help="Time limit of a step. Default: an hour.")
def open_(
    url: str,
    token: str,
    model: str,
    members: tuple[str, ...],
    threshold: int | None,
    step_seconds: int | None,
) -> None:
    """Open a round. It completes waiting erasures whose clients are all members."""
    from workers.cli.errors import shown

    with shown(), _operator(url, token) as service:
        opened = service.open_round(
            model, members, threshold=threshold, step_seconds=step_seconds
        )
        _show(opened)


@round_.command()
@service_url
@reading_token
@click.argument("round_id")
def status(url: str, token: str, round_id: str) -> None:
    """Show a round: its step, the number of answers, and why it failed."""
    from workers.cli.errors import shown

    with shown(), _operator(url, token) as service:
        _show(service.round(round_id))


@round_.command()
@service_url
@operator_token
@click.argument("round_id")
def abort(url: str, token: str, round_id: str) -> None:
    """Abort a round; its erasures stay queued for the next one."""
    from workers.cli.errors import shown

    with shown(), _operator(url, token) as service:
        _show(service.abort_round(round_id))


@round_.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEYID=FILE...")
def roster(keys: tuple[str, ...]) -> None:
    """Print a roster of public keys (PEM) that you got from the members themselves."""
    from lethe.signing.keys import load_public_key, public_pem
    from workers.cli.errors import shown

    found: dict[str, str] = {}
    with shown():
        for item in keys:
            keyid, separator, path = item.partition("=")
            if not separator or not Path(path).is_file():
                raise click.UsageError("give each member as KEYID=FILE")
            found[keyid] = public_pem(load_public_key(Path(path).read_bytes()))
    click.echo(json.dumps(found, indent=1, sort_keys=True))


@round_.command()
@service_url
@click.option("--key", "key_file", type=FILE, required=True, help="Your private key (PEM).")
@click.option("--keyid", help="Its keyid. Default: the key's fingerprint.")
@click.option(
    "--roster",
    "roster_file",
    type=FILE,
    required=True,
    help="Your peers' public keys, from the peers: see `lethe round roster`.",
)
@click.option(
    "--data",
    type=DATA,
    required=True,
    help="All your rows: an .npz with features, labels, clients, records, optionally subjects "
    "and identity_KIND; or a table, with --label, --client and --record-id.",
)
@table_options(sql=False)
@click.option("--round", "round_id", help="Id of the round. Default: your open round.")
@click.option(
    "--model",
    help="Only a round of this model. Default: of those in your record, or any if it has none.",
)
@click.option(
    "--record",
    "record_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Your record of contributions; keep it. Default: KEY.rounds.json.",
)
@click.option(
    "--least-contributors",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Refuse a round with a lower minimum of contributing members.",
)
@click.option(
    "--least-rows",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Refuse a round with a lower minimum of added and released records.",
)
@click.option(
    "--adopt-held",
    is_flag=True,
    help="Your record is lost: start a new one from the service's data.",
)
@click.option(
    "--allow-few-left",
    is_flag=True,
    help="Join even if these releases leave fewer contributors than the minimum in an earlier "
    "sum. Use it only if the other members confirm that their records are to be erased.",
)
@click.option(
    "--release-only", is_flag=True, help="Add nothing; only release the requested records."
)
@click.option("--timeout", type=float, help="Seconds to wait. Default: no limit.")
def join(
    url: str,
    key_file: Path,
    keyid: str | None,
    roster_file: Path,
    data: Path,
    round_id: str | None,
    model: str | None,
    record_file: Path | None,
    least_contributors: int,
    least_rows: int,
    adopt_held: bool,
    allow_few_left: bool,
    release_only: bool,
    timeout: float | None,
    **columns: Any,
) -> None:
    """Join a round: compute sums of your rows here and send them masked.

    Adds the rows in DATA that are not in your record yet, and releases the records that the
    round requests. Progress goes to standard error, the outcome to standard output. If the
    process ends before the round, you have dropped out.
    """
    from lethe.client.keyids import derived_keyid
    from lethe.signing.keys import load_private_key
    from workers.cli.errors import shown
    from workers.secure_sum.client.join import Joining, find_round
    from workers.secure_sum.client.record import Least, open_record
    from workers.secure_sum.client.service import RoundClient
    from workers.secure_sum.signing import read_roster

    with shown():
        key = load_private_key(key_file.read_bytes())
        peers = read_roster(roster_file.read_bytes())
        rows = read_rows(data, columns, people=True)
        place = record_file or key_file.with_name(f"{key_file.name}.rounds.json")
        with (
            open_record(place) as record,
            derived_keyid(keyid, key) as name,
            RoundClient(url, name, key) as service,
        ):
            chosen = round_id or find_round(service, model)
            joining = Joining(
                service,
                chosen,
                name,
                key,
                peers,
                rows,
                record,
                add=not release_only,
                least=Least(least_contributors, least_rows),
                adopt=adopt_held,
                few_left=allow_few_left,
                model=model,
                say=lambda text: click.echo(text, err=True),
            )
            ended = joining.run(timeout=timeout)
        for warning in ended["warnings"]:
            click.echo(plain(f"warning: {warning}"), err=True)
        if ended["state"] == "failed":
            raise click.ClickException(plain(str(ended["reason"])))
        click.echo(plain(f"{chosen}  {ended['state']}"))


def _show(document: Mapping[str, Any]) -> None:
    # Escaped: what JSON leaves as it is, such as U+009B, would act on a terminal.
    click.echo(json.dumps(dict(document), indent=1, sort_keys=True))


def _operator(url: str, token: str) -> "RoundClient":
    from workers.secure_sum.client.service import RoundClient

    return RoundClient(url, token=token)
