"""The verifier's input for what is fitted in one go: stored rows, and the judge's own fit."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlmodel import Session

from lethe.catalogue import CHECKS
from workers.errors import RefusedError
from workers.families.recipe.rows import (
    all_digests,
    digest_of_rows,
    salts_of,
    stored,
    table,
)
from workers.families.recipe.update import NotFittedError, limits, recipe_of
from workers.jobs.case import (
    ExecutedJob,
    Judges,
    Verdict,
    purge_claims,
    retained_commitments,
    retained_set_claim,
)
from workers.jobs.lease import JobContext
from workers.jobs.logged_model import check_logged, registered
from workers.judge.checks import ODD_INPUT, judged, report_of
from workers.judge.refitted import VERIFIER, RefittedClaim, RefittedVerifier
from workers.training.recipes import process
from workers.training.recipes.fit import FitRows
from workers.training.recipes.recipe import Recipe


class OtherProcessorError(NotFittedError):
    """The bits of this machine are not those of the fit's; another may verify it."""

    slug, title = "other-machine", "Another machine must verify this"


@dataclass(frozen=True, slots=True)
class OwnFit:
    """The judge's own fit: of rows, as the file that a model fitted to them has.

    verifier: of the class that is claimed. alike: whether this process computes as the one
    that fitted. Raises NotFittedError where it failed: it is tried again, and refutes nothing.
    """

    verifier: RefittedVerifier
    alike: bool
    fit: Callable[[FitRows], bytes]


def prepare_recipe(job: JobContext, session: Session, cases: Sequence[ExecutedJob]) -> Judges:
    """Load what executed jobs left of one version of a recipe; the result judges them."""

    def own(case: ExecutedJob) -> OwnFit:
        recipe = recipe_of(case.model)
        most = limits(job.services)

        def fit(rows: FitRows) -> bytes:
            try:
                return process.fit(recipe, rows, process.threads_of(recipe), most)
            except RefusedError as error:
                raise NotFittedError(str(error)) from None

        return OwnFit(VERIFIER, _same_machine(recipe, case), fit)

    return prepare(job, session, cases, own, VERIFIER)


def prepare(
    job: JobContext,
    session: Session,
    cases: Sequence[ExecutedJob],
    own: Callable[[ExecutedJob], OwnFit],
    verifier: RefittedVerifier,
) -> Judges:
    """Load what executed jobs left of one version; the result judges them by the judge's fit.

    One fit serves all. What cannot even be read is refuted: the judged must not be able to
    stop the judge.
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
    own: Callable[[ExecutedJob], OwnFit],
) -> Judges:
    services = job.services
    case, *_ = cases
    model, before, after = case.model, case.before, case.after
    check_logged(services.ledger, model, before, after)
    mine = own(case)
    if not mine.alike and job.lease.attempt > 1:
        raise OtherProcessorError("verify on a machine like the one that fitted")
    blocks = list(stored(services, session, job.lease.model_id).values())
    salts = salts_of(session, job.lease.model_id)
    rows = table(blocks, salts, model)
    digests = all_digests(blocks, salts)
    ids = [record for block in blocks for record in block.records]
    commitments = retained_commitments(session, model, ids)
    file = services.artifacts.get(session, after.head_id)
    logged = registered(services.ledger, model)
    removed = [bytes.fromhex(digest) for digest in case.plan.rows_gone]
    purges = purge_claims(services, session, cases, ids)
    claims = [
        RefittedClaim(
            retained_set=retained_set_claim(one, commitments),
            purge=purge,
            published_digest=after.head_digest,
            file_digest=hashlib.sha256(file).hexdigest(),
            refitted_digest="",
            claimed_data=after.statistics_digest,
            data=digest_of_rows(digests.values()),
            registration=logged.config,
            environment_equal=mine.alike,
            rows_before=(
                before.statistics_digest,
                digest_of_rows([*digests.values(), *removed]),
            ),
        )
        for one, purge in zip(cases, purges, strict=True)
    ]

    def judge() -> list[Verdict]:
        again = hashlib.sha256(mine.fit(rows)).hexdigest()
        details = {"rows": str(len(rows))}
        return [
            Verdict(
                mine.verifier.id,
                mine.verifier.version,
                mine.verifier.verify(replace(claim, refitted_digest=again)),
                details,
                repeated=True,
            )
            for claim in claims
        ]

    return judge


def _same_machine(recipe: Recipe, case: ExecutedJob) -> bool:
    """Return whether this process computes as the one that fitted."""
    recorded = case.plan.parameters
    here = process.environment(recipe)
    return all(recorded.get(name) == value for name, value in here.items())
