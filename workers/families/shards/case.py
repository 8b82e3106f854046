"""The verifier's input for shards: stored rows by shard, and the judge's own fits."""

import json
from collections.abc import Sequence

from sqlmodel import Session

from workers.cases.case import ExecutedJob, Judges
from workers.errors import RefusedError
from workers.families.recipe.case import (
    ModelRows,
    OtherProcessorError,
    OwnFit,
    prepare,
    same_machine,
)
from workers.families.recipe.rows import digest_of_rows
from workers.families.recipe.update import NotFittedError
from workers.families.shards.rows import owned, shard_key, sharded, subject_names
from workers.families.shards.update import fitter_of
from workers.judge.refitted import VERIFIER, ShardsClaim
from workers.leases import checkpoints
from workers.leases.lease import JobContext
from workers.training.programs.program import OtherEnvironmentError
from workers.training.shards import container
from workers.training.shards.container import ShardEntry, ShardManifest, manifest_of


def prepare_shards(job: JobContext, session: Session, cases: Sequence[ExecutedJob]) -> Judges:
    """Load the results of executed jobs of one version of shards; the result judges them."""

    def own(stored: ModelRows) -> OwnFit:
        before = checkpoints.load_before(job, session)
        if before is None:
            raise ValueError("nothing was kept of the version before")
        kept = json.loads(before)
        return _own(stored, session, ShardManifest.parse(kept["manifest"]), kept["gone"])

    return prepare(job, session, cases, own, VERIFIER)


def _own(
    stored: ModelRows, session: Session, before: ShardManifest, gone: Sequence[Sequence[str]]
) -> OwnFit:
    """Return the judge's fit of the named shards. Raises ODD_INPUT for a malformed claim.

    before: the manifest before, and gone: the digests of the removed rows of each shard, both
    as claimed. They are accepted only if the manifest that they give has the digest that the
    log has for the version before.
    """
    services, case = stored.job.services, stored.case
    model, plan = case.model, case.plan
    if sorted(one for own in gone for one in own) != sorted(plan.rows_gone):
        raise ValueError("the removed rows are not those of the execution")
    blocks = owned(stored.blocks, subject_names(session, stored.job.lease.model_id))
    rows = sharded(model, shard_key(services.root_secret, model), blocks, stored.salts)
    _, files = container.decode(stored.file)
    named = [int(place) for place in plan.parameters["shards"].split()]
    if len(files) != len(rows) or not set(named) <= set(range(len(rows))):
        raise ValueError("other shards than are registered")
    aggregate = model.config["shards"]["aggregate"]
    digests = [one.digest for one in rows]
    held = ShardManifest(
        aggregate,
        tuple(
            ShardEntry(
                entry.file,
                digest_of_rows([*own.digests.values(), *map(bytes.fromhex, went)]),
            )
            for entry, own, went in zip(before.shards, rows, gone, strict=True)
        ),
    )
    after = manifest_of(aggregate, files, digests)
    fitter = fitter_of(services, model)

    def fit() -> bytes:
        try:
            fitted = fitter.fit([rows[place].table for place in named])
        except OtherEnvironmentError as error:
            raise OtherProcessorError(str(error)) from None
        except RefusedError as error:
            raise NotFittedError(str(error)) from None
        again = dict(zip(named, fitted, strict=True))
        whole = [again.get(place, file) for place, file in enumerate(files)]
        return container.encode(manifest_of(aggregate, whole, digests), whole)

    return OwnFit(
        verifier=VERIFIER,
        alike=same_machine(case, fitter.environment()),
        data=after.digest,
        before=held.digest,
        fit=fit,
        shards=ShardsClaim(
            named,
            [(one.file, one.rows) for one in held.shards],
            [(one.file, one.rows) for one in after.shards],
        ),
        details={
            "shardsBefore": held.to_bytes().decode(),
            "shardsAfter": after.to_bytes().decode(),
        },
    )
