"""Shards: learn an upload, forget records, refit: only the shards whose rows differ."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.service.context import Services
from lethe import canonical
from models import Model, ModelVersion
from workers.errors import ArtifactError, RefusedError
from workers.families.recipe.rows import TableBlock, current_rows, departure
from workers.families.recipe.update import NotFittedError, limits, recipe_of
from workers.families.shards.rows import ShardRows, owned, shard_key, sharded, subject_names
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.lineage.logged import NotLoggedError, check_logged
from workers.lineage.versions import OtherModelError
from workers.training.programs.fitter import ProgramFitter
from workers.training.recipes.process import RecipeFitter
from workers.training.shards import container
from workers.training.shards.container import Fitter, ShardManifest, manifest_of
from workers.updates.update import Encoded, ParsedUpload, Update, UpdateResult, split

METHOD, VERSION, CLAIM = "refit-shards", "1", "exact-retrained"
OTHER = (
    "nothing was published: the stored manifest of the shards is not that of the current "
    "version in the log; restore the model's rows of the table model_versions and their "
    "artifacts from a backup"
)
MOVED = (
    "nothing was published: stored rows are not in the shards that they were fitted in; "
    "restore the model's rows of the tables records, subjects and feature_blocks from a backup"
)


def fitter_of(services: Services, model: Model) -> Fitter:
    """Return the fitter of a model's shards in this installation. Raises RefusedError."""
    if "script" in model.config:
        return ProgramFitter(model.config, limits(services))
    return RecipeFitter(recipe_of(model), limits(services))


@dataclass(frozen=True, slots=True, eq=False)
class StoredShards:
    """A version's stored shards. files: None for one that differs from the published one."""

    manifest: ShardManifest
    files: list[bytes | None]


def learn(
    job: JobContext,
    before: ModelVersion | None,
    upload: ParsedUpload,
    fresh: NDArray[np.uint8],
) -> UpdateResult:
    """Fit the shards that receive rows; the first time each one in two processes, to compare.

    Raises RefusedError if the recipe is invalid, fails on these rows, or its bytes differ from
    fit to fit, or if the stored version before differs from the log.
    """
    services, model = job.services, job.model
    blocks, salts = current_rows(job)
    with services.reading() as session:
        names = subject_names(session, job.lease.model_id)
    salts |= zip(upload.records, split(fresh), strict=True)
    new = [
        (subject, block)
        for (_, subject), block in upload.blocks.items()
        if isinstance(block, TableBlock)
    ]
    key = shard_key(services.root_secret, model)
    held = list(owned(blocks, names))
    rows = sharded(model, key, [*held, *new], salts)
    if before is None:
        files = fitter_of(services, model).try_twice([one.table for one in rows])
        return _result(job, rows, files, range(len(rows)), None)
    opened = _opened(job, before, sharded(model, key, held, salts))
    return _fitted(job, rows, opened)


def forget(job: JobContext, before: ModelVersion, members: Sequence[BatchMember]) -> Update:
    """Fit the shards that held the members' records without them.

    Raises:
        NotFittedError: A fit failed or exceeded a limit, or a library is not installed.
        OtherModelError: The stored version before differs from the log.
    """
    found = departure(job, members)
    with job.services.reading() as session:
        names = subject_names(session, job.lease.model_id)
    key = shard_key(job.services.root_secret, job.model)
    held = sharded(job.model, key, owned(found.blocks, names), found.salts)
    opened = _opened(job, before, held)
    rows = sharded(job.model, key, owned(found.left, names), found.salts)
    try:
        result = _fitted(job, rows, opened)
    except RefusedError as error:
        raise NotFittedError(str(error)) from None
    leaving = {record for member in members for record in member.salts}
    gone = [
        sorted(own.digests[one].hex() for one in own.digests.keys() & leaving) for own in held
    ]
    sealed = canonical.encode({"gone": gone, "manifest": opened.manifest.document})
    return Update(result, found.rest, before=sealed, rows_gone=found.gone)


def refit(job: JobContext) -> UpdateResult:
    """Refit every shard on its retained rows. Raises NotFittedError."""
    services, model = job.services, job.model
    blocks, salts = current_rows(job)
    with services.reading() as session:
        names = subject_names(session, job.lease.model_id)
    rows = sharded(model, shard_key(services.root_secret, model), owned(blocks, names), salts)
    try:
        files = fitter_of(services, model).fit([one.table for one in rows])
    except RefusedError as error:
        raise NotFittedError(str(error)) from None
    return _result(job, rows, files, range(len(rows)), None)


def _opened(job: JobContext, version: ModelVersion, held: Sequence[ShardRows]) -> StoredShards:
    """Return a version's shards, each compared with its digest. Raises OtherModelError.

    held: its rows, which must be those that its shards were fitted on: from the remaining rows
    no judge could tell which shard an erased one was in.

    A contribution starts from the version before, and its result is not judged: a person with
    write access to the database could point at another version's or another model's shards.
    """
    services = job.services
    with services.reading() as session:
        state = services.artifacts.get(session, version.state_id)
        file = services.artifacts.get(session, version.head_id)
    try:
        check_logged(services.ledger, job.model, version)
        manifest = ShardManifest.from_bytes(state)
    except (NotLoggedError, ArtifactError):
        raise OtherModelError(OTHER) from None
    if manifest.digest != version.statistics_digest:
        raise OtherModelError(OTHER)
    if [one.digest for one in held] != [entry.rows for entry in manifest.shards]:
        raise OtherModelError(MOVED)
    files: list[bytes | None] = [None] * len(manifest.shards)
    try:
        _, found = container.decode(file)
    except ArtifactError:
        return StoredShards(manifest, files)
    for place, (entry, own) in enumerate(zip(manifest.shards, found, strict=False)):
        if hashlib.sha256(own).hexdigest() == entry.file:
            files[place] = own
    return StoredShards(manifest, files)


def _fitted(job: JobContext, rows: Sequence[ShardRows], opened: StoredShards) -> UpdateResult:
    """Fit the shards whose rows differ from the version before, or that are damaged."""
    entries = opened.manifest.shards
    named = [
        place
        for place, (own, entry) in enumerate(zip(rows, entries, strict=True))
        if own.digest != entry.rows or opened.files[place] is None
    ]
    fitter = fitter_of(job.services, job.model)
    files = dict(zip(named, fitter.fit([rows[place].table for place in named]), strict=True))
    whole = [files.get(place, old) for place, old in enumerate(opened.files)]
    return _result(job, rows, [one for one in whole if one is not None], named, opened)


def _result(
    job: JobContext,
    rows: Sequence[ShardRows],
    files: Sequence[bytes],
    named: Collection[int],
    opened: StoredShards | None,
) -> UpdateResult:
    model, fitter = job.model, fitter_of(job.services, job.model)
    manifest = manifest_of(
        model.config["shards"]["aggregate"], files, [one.digest for one in rows]
    )
    changes = {} if opened is None else _changes(named, opened.manifest, manifest)
    return UpdateResult(
        encoded=Encoded(
            container.encode(manifest, files), manifest.to_bytes(), manifest.digest
        ),
        method=METHOD,
        method_version=VERSION,
        claim=CLAIM,
        parameters={
            "data": "rows",
            "estimator": fitter.name,
            "shards": " ".join(map(str, sorted(named))),
            "shardsOf": str(len(rows)),
            **changes,
            **fitter.environment(),
        },
    )


def _changes(
    named: Iterable[int], before: ShardManifest, after: ShardManifest
) -> Mapping[str, str]:
    """Return the digests of each named shard's file before and after, as parameters."""
    return {
        f"shard{place}": f"{before.shards[place].file} {after.shards[place].file}"
        for place in named
    }
