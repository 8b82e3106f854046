"""Forests: learn an upload, forget records, fit again.

The sealed state has the trees with their counts. What a version publishes is the same whether
it was updated or fitted anew: where the state is damaged, a fit takes its place.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lethe import canonical
from models import Model, ModelVersion
from workers.errors import RefusedError
from workers.families.recipe.rows import (
    TableBlock,
    all_digests,
    departure,
    digest_of_rows,
    salts_of,
    stored,
)
from workers.jobs.chain import BatchMember
from workers.jobs.draft import sha256_hex
from workers.jobs.lease import JobContext
from workers.jobs.update import Encoded, ParsedUpload, Update, UpdateResult, split

if TYPE_CHECKING:  # numba takes a second to import
    from lethe.estimators.forest.forest import Forest
    from lethe.estimators.forest.published import ForestConfig

METHOD, VERSION, CLAIM = "forest-exact", "1", "exact"


def config_of(model: Model) -> "ForestConfig":
    """Return what a model's forest is a function of. Raises RefusedError."""
    from lethe.estimators.errors import EstimatorInputError
    from lethe.estimators.forest.bins import Bins
    from lethe.estimators.forest.published import ForestConfig

    options = dict(model.config["forest"])
    options.pop("step")
    edges = [[float.fromhex(edge) for edge in own] for own in model.config["edges"]]
    try:
        bins = Bins.declared(edges, missing=model.config["missing"])
        return ForestConfig(bins=bins, classes=len(model.classes), **options)
    except EstimatorInputError as error:
        raise RefusedError(str(error)) from None


def fitted(model: Model, blocks: Iterable[TableBlock]) -> "Forest":
    """Return the forest of some rows. Raises RefusedError for rows that no forest takes."""
    from lethe.estimators.forest.forest import Forest

    forest = Forest(config_of(model))
    _add(forest, model, blocks)
    return forest


def learn(
    job: JobContext,
    before: ModelVersion | None,
    upload: ParsedUpload,
    fresh: NDArray[np.uint8],
) -> UpdateResult:
    """Add an upload to the forest. Raises RefusedError if no forest takes its rows."""
    services, model = job.services, job.model
    new = [one for one in upload.blocks.values() if isinstance(one, TableBlock)]
    with services.reading() as session:
        blocks = list(stored(services, session, job.lease.model_id).values())
        salts = salts_of(session, job.lease.model_id)
    salts |= zip(upload.records, split(fresh), strict=True)
    forest = None if before is None else _opened(job, before)
    if forest is not None and not _has_rows(forest, model, blocks):
        forest = None  # no judge looks at what was learned
    if forest is None:
        forest = fitted(model, [*blocks, *new])
    else:
        _add(forest, model, new)
    return _result(model, forest, all_digests([*blocks, *new], salts))


def forget(job: JobContext, before: ModelVersion, members: Sequence[BatchMember]) -> Update:
    """Remove the members' records from the forest. Raises RefusedError."""
    from lethe.estimators.errors import EstimatorInputError

    found = departure(job, members)
    forest = _opened(job, before)
    try:
        if forest is not None:
            forest.remove(sorted(record for member in members for record in member.salts))
    except EstimatorInputError:  # the state is of other rows
        forest = None
    if forest is None:
        forest = fitted(job.model, found.retained)
    result = _result(job.model, forest, all_digests(found.retained, found.salts))
    return Update(result, found.rest, rows_gone=found.gone)


def refit(job: JobContext) -> UpdateResult:
    """Fit the forest anew to the retained rows. Raises RefusedError."""
    services = job.services
    with services.reading() as session:
        blocks = list(stored(services, session, job.lease.model_id).values())
        salts = salts_of(session, job.lease.model_id)
    return _result(job.model, fitted(job.model, blocks), all_digests(blocks, salts))


def _opened(job: JobContext, version: ModelVersion) -> "Forest | None":
    """Return a version's forest, None where its state is not one of this model."""
    from lethe.estimators.errors import EstimatorInputError
    from lethe.estimators.forest.forest import Forest

    with job.services.reading() as session:
        state = job.services.artifacts.get(session, version.state_id)
    wanted = config_of(job.model)
    try:
        forest = Forest.open(state)
    except EstimatorInputError:
        return None
    same = forest.config.header() == wanted.header() and all(
        map(np.array_equal, forest.config.edge_arrays(), wanted.edge_arrays())
    )
    return forest if same else None


def _has_rows(forest: "Forest", model: Model, blocks: Iterable[TableBlock]) -> bool:
    """Return whether a forest is of these rows.

    Only the service can seal a state, but whoever writes the database can name another's: of
    another model that was registered alike, or of an earlier version.
    """
    from lethe.estimators.errors import EstimatorInputError

    records, features, targets = _rows(model, blocks)
    if len(forest) != len(records):
        return False
    try:
        slots = forest.store.slots_of(records)
        codes = forest.config.bins.codes(features)
    except EstimatorInputError:
        return False
    store = forest.store
    return np.array_equal(store.values[slots], codes) and np.array_equal(
        store.targets[slots, 0], targets
    )


def _add(forest: "Forest", model: Model, blocks: Iterable[TableBlock]) -> None:
    from lethe.estimators.errors import EstimatorInputError

    records, features, targets = _rows(model, blocks)
    try:
        if records:
            forest.add(records, features, targets)
    except EstimatorInputError as error:
        raise RefusedError(str(error)) from None


def _rows(
    model: Model, blocks: Iterable[TableBlock]
) -> tuple[list[str], NDArray[np.float64], NDArray[np.int64]]:
    """Return ids, features (n, columns) and targets (n,) as a forest takes them."""
    parts = list(blocks)
    records = [record for block in parts for record in block.records]
    none = np.zeros((0, model.config["columns"]))
    features = np.concatenate([none, *(block.features for block in parts)])
    labels = np.concatenate([none[:, 0], *(block.labels for block in parts)])
    if not model.classes:
        step = float.fromhex(model.config["forest"]["step"])
        labels = np.rint(np.clip(labels / step, -(2.0**62), 2.0**62))
    return records, features, labels.astype(np.int64)


def _result(model: Model, forest: "Forest", digests: Mapping[str, bytes]) -> UpdateResult:
    options = model.config["forest"]
    data = digest_of_rows(digests.values())
    return UpdateResult(
        encoded=Encoded(forest.published().to_bytes(), forest.seal(), data),
        method=METHOD,
        method_version=VERSION,
        claim=CLAIM,
        parameters={
            "data": "rows",
            "forest": sha256_hex(canonical.encode(model.config["forest"])),
            "seed": str(options["seed"]),
            "trees": str(options["trees"]),
        },
    )
