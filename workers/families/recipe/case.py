"""The verifier's input for models fitted in one go: stored rows, and the judge's own fit."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlmodel import Session

from lethe.catalogue import CHECKS
from workers.cases.case import ExecutedJob, Judges, Verdict
from workers.cases.claims import purge_claims, retained_commitments, retained_set_claim
from workers.errors import RefusedError
from workers.families.recipe.rows import (
    TableBlock,
    digest_of_rows,
    stored,
    table,
)
from workers.families.recipe.update import NotFittedError, limits, recipe_of
from workers.judge.base import Verifier
from workers.judge.checks import ODD_INPUT, judged, report_of
from workers.judge.refitted import VERIFIER, RefittedClaim, ShardsClaim
from workers.leases.lease import JobContext
from workers.lineage.logged import check_logged, registered
from workers.lineage.versions import salts_of
from workers.training.recipes import process
from workers.training.recipes.fit import FitRows


class OtherProcessorError(NotFittedError):
    """This machine's bits differ from those of the fit's; another worker may verify it."""

    slug, title = "other-machine", "Another machine must verify this"


@dataclass(frozen=True, slots=True, eq=False)
class ModelRows:
    """A model's retained rows, and what an executed job published about them.

    blocks: by subject. removed: salted digests of the removed rows. file: the version's.
    """

    job: JobContext
    case: ExecutedJob
    blocks: Mapping[int, TableBlock]
    salts: Mapping[str, bytes]
    removed: Sequence[bytes]
    file: bytes

    def table(self) -> FitRows:
        """Return all rows in fitting order."""
        return table(self.blocks.values(), self.salts, self.case.model)


@dataclass(frozen=True, slots=True)
class OwnFit:
    """The judge's own fit, and the digests of its rows.

    verifier: of the claimed class. alike: whether this process computes identically to the one
    that fitted. data, before: hex digests of the stored rows, and of those with the removed
    ones, as versions name them. fit: makes the file of a model fitted to the rows; it raises
    NotFittedError if that fails, which is retried and refutes nothing. complete: called with
    (claim, published file, own file) if the verifier compares more than their digests; never
    raises, whatever the published file is.
    """

    verifier: Verifier[Any]
    alike: bool
    data: str
    before: str
    fit: Callable[[], bytes]
    shards: ShardsClaim | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    complete: Callable[[RefittedClaim, bytes, bytes], object] = lambda claim, *_: claim

    @classmethod
    def of_all(
        cls,
        rows: ModelRows,
        verifier: Verifier[Any],
        alike: bool,
        fit: Callable[[FitRows], bytes],
        complete: Callable[[RefittedClaim, bytes, bytes], object] = lambda claim, *_: claim,
    ) -> "OwnFit":
        """Return one fit of all rows."""
        each = (block.digests(rows.salts) for block in rows.blocks.values())
        digests = [digest for block in each for digest in block.values()]
        before = digest_of_rows([*digests, *rows.removed])
        sorted_rows = rows.table()
        return cls(
            verifier,
            alike,
            digest_of_rows(digests),
            before,
            lambda: fit(sorted_rows),
            complete=complete,
        )


def prepare_recipe(job: JobContext, session: Session, cases: Sequence[ExecutedJob]) -> Judges:
    """Load the results of executed jobs of one recipe version; the result judges them."""

    def own(stored: ModelRows) -> OwnFit:
        recipe = recipe_of(stored.case.model)
        most = limits(job.services)

        def fit(rows: FitRows) -> bytes:
            try:
                return process.fit(recipe, rows, process.threads_of(recipe), most)
            except RefusedError as error:
                raise NotFittedError(str(error)) from None

        here = process.environment(recipe)
        return OwnFit.of_all(stored, VERIFIER, same_machine(stored.case, here), fit)

    return prepare(job, session, cases, own, VERIFIER)


def prepare(
    job: JobContext,
    session: Session,
    cases: Sequence[ExecutedJob],
    own: Callable[[ModelRows], OwnFit],
    verifier: Verifier[Any],
) -> Judges:
    """Load the results of executed jobs of one version; the result judges them by its own fit.

    One fit serves all. Unreadable results are refuted: damaged data must not be able to stop
    the judge.
    """
    try:
        return _prepare(job, session, cases, own)
    except ODD_INPUT as error:
        value = f"what was published cannot be evaluated: {type(error).__name__}"
        report = report_of([judged(CHECKS["claim"], value, passed=False)])
        verdict = Verdict(verifier.id, verifier.version, report, {})
        return lambda: [verdict]


def _prepare(
    job: JobContext,
    session: Session,
    cases: Sequence[ExecutedJob],
    own: Callable[[ModelRows], OwnFit],
) -> Judges:
    services = job.services
    case, *_ = cases
    model, before, after = case.model, case.before, case.after
    check_logged(services.ledger, model, before, after)
    blocks = stored(services, session, job.lease.model_id)
    salts = salts_of(session, job.lease.model_id)
    ids = [record for block in blocks.values() for record in block.records]
    commitments = retained_commitments(session, model, ids)
    file = services.artifacts.get(session, after.head_id)
    logged = registered(services.ledger, model)
    removed = [bytes.fromhex(digest) for digest in case.plan.rows_gone]
    mine = own(ModelRows(job, case, blocks, salts, removed, file))
    if not mine.alike and job.lease.step > 1:
        raise OtherProcessorError("verify on a machine like the one that fitted")
    purges = purge_claims(services, session, cases, ids)
    claims = [
        RefittedClaim(
            retained_set=retained_set_claim(one, commitments),
            purge=purge,
            published_digest=after.head_digest,
            file_digest=hashlib.sha256(file).hexdigest(),
            refitted_digest="",
            claimed_data=after.statistics_digest,
            data=mine.data,
            registration=logged.config,
            environment_equal=mine.alike,
            rows_before=(before.statistics_digest, mine.before),
            shards=mine.shards,
        )
        for one, purge in zip(cases, purges, strict=True)
    ]

    def judge() -> list[Verdict]:
        again = mine.fit()
        digest = hashlib.sha256(again).hexdigest()
        complete = [
            mine.complete(replace(claim, refitted_digest=digest), file, again)
            for claim in claims
        ]
        details = {"rows": str(len(ids)), **mine.details}
        return [
            Verdict(
                mine.verifier.id,
                mine.verifier.version,
                mine.verifier.verify(claim),
                details,
                repeated=True,
            )
            for claim in complete
        ]

    return judge


def same_machine(case: ExecutedJob, here: Mapping[str, str]) -> bool:
    """Return whether this process computes identically to the one that fitted.

    here: this process's environment.
    """
    recorded = case.plan.parameters
    return all(recorded.get(name) == value for name, value in here.items())
