"""Learn an upload, forget records, refit: each is a fit on all current rows.

What is fitted, and what is claimed, is defined by a family's `Fitting`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.service.context import Services
from lethe import canonical
from lethe.errors import LetheError
from models import Model, ModelVersion
from workers.errors import RefusedError
from workers.families.recipe.rows import (
    TableBlock,
    all_digests,
    departure,
    digest_of_rows,
    salts_of,
    stored,
    table,
)
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.lineage.logged import require_rows
from workers.training.recipes import process
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits
from workers.training.recipes.recipe import Recipe
from workers.updates.draft import sha256_hex
from workers.updates.update import Encoded, ParsedUpload, Update, UpdateResult, split

METHOD, VERSION, CLAIM = "refit", "1", "exact-retrained"
STATE = "recipe-state/1"


class NotFittedError(LetheError):
    """A fit that must succeed failed: it is retried, and an operator is told.

    No request is refused because an operator's limit is too low.
    """

    slug, title, status = "not-fitted", "The model could not be fitted within its limits", 503


def recipe_of(model: Model) -> Recipe:
    """Return the recipe a model was registered with. Raises RefusedError."""
    return Recipe.parse(model.config["recipe"])


def limits(services: Services) -> Limits:
    """Return the limits of a fit in this installation."""
    settings = services.settings
    return Limits(settings.fit_seconds, settings.fit_memory_bytes, settings.fit_output_bytes)


@dataclass(frozen=True, slots=True)
class Fitting:
    """How a family's models are fitted: to rows in the order of their commitments.

    fit: returns the bytes of the model file. first: the same at registration, where a fit that
    cannot be repeated is refused. result: what is published about a file, by the salted digests
    of its rows. All raise RefusedError.
    """

    fit: Callable[[Model, FitRows, Limits], bytes]
    first: Callable[[Model, FitRows, Limits], bytes]
    result: Callable[[Model, bytes, Mapping[str, bytes]], UpdateResult]


def learn(
    fitting: Fitting,
    job: JobContext,
    before: ModelVersion | None,
    upload: ParsedUpload,
    fresh: NDArray[np.uint8],
) -> UpdateResult:
    """Fit on the stored rows and the upload.

    Raises RefusedError, as `Fitting` does, and if the stored rows are not those of `before`.
    """
    services, model = job.services, job.model
    new = [one for one in upload.blocks.values() if isinstance(one, TableBlock)]
    with services.reading() as session:
        held = list(stored(services, session, job.lease.model_id).values())
        salts = salts_of(session, job.lease.model_id)
    digests = all_digests(held, salts)
    require_rows(before, digest_of_rows(digests.values()))
    salts |= zip(upload.records, split(fresh), strict=True)
    digests |= all_digests(new, salts)
    rows = table([*held, *new], salts, model)
    run = fitting.first if before is None else fitting.fit
    file = run(model, rows, limits(services))
    return fitting.result(model, file, digests)


def forget(fitting: Fitting, job: JobContext, members: Sequence[BatchMember]) -> Update:
    """Fit on the rows without the members' records.

    Raises NotFittedError if the fit failed or exceeded a limit, or a library is missing, and
    OtherModelError if a record has two rows.
    """
    found = departure(job, members)
    result = _refitted(fitting, job, found.retained, found.salts)
    return Update(result, found.rest, rows_gone=found.gone)


def refit(fitting: Fitting, job: JobContext) -> UpdateResult:
    """Refit on the retained rows. Raises as `forget`."""
    services = job.services
    with services.reading() as session:
        blocks = list(stored(services, session, job.lease.model_id).values())
        salts = salts_of(session, job.lease.model_id)
    return _refitted(fitting, job, blocks, salts)


def _refitted(
    fitting: Fitting,
    job: JobContext,
    blocks: Sequence[TableBlock],
    salts: Mapping[str, bytes],
) -> UpdateResult:
    digests = all_digests(blocks, salts)
    rows = table(blocks, salts, job.model)
    try:
        file = fitting.fit(job.model, rows, limits(job.services))
    except RefusedError as error:
        raise NotFittedError(str(error)) from None
    return fitting.result(job.model, file, digests)


def _fit(model: Model, rows: FitRows, most: Limits) -> bytes:
    recipe = recipe_of(model)
    return process.fit(recipe, rows, process.threads_of(recipe), most)


def _first(model: Model, rows: FitRows, most: Limits) -> bytes:
    """Fit in two processes, to compare the results."""
    return process.try_twice(recipe_of(model), rows, most)


def _result(model: Model, file: bytes, digests: Mapping[str, bytes]) -> UpdateResult:
    recipe = recipe_of(model)
    data = digest_of_rows(digests.values())
    digest = sha256_hex(canonical.encode(recipe.document))
    # Everything else that a refit needs is in the registration and the rows.
    state = canonical.encode({"data": data, "kind": STATE, "recipe": digest})
    return UpdateResult(
        encoded=Encoded(file, state, data),
        method=METHOD,
        method_version=VERSION,
        claim=CLAIM,
        parameters={
            "data": "rows",
            "estimator": ", ".join(one.estimator for one in recipe.steps),
            "seed": str(recipe.seed),
            **process.environment(recipe),
        },
    )


FITTING = Fitting(_fit, _first, _result)
