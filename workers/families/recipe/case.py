"""The verifier's input for recipes: stored rows, and the judge's own fit on them."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from sqlmodel import Session

from app.service.context import Services
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
from workers.judge.refitted import VERIFIER, RefittedClaim
from workers.training.recipes import process
from workers.training.recipes.fit import FitRows
from workers.training.recipes.recipe import Recipe


class OtherProcessorError(NotFittedError):
    """The bits of this machine are not those of the fit's; another may verify it."""

    slug, title = "other-machine", "Another machine must verify this"


def prepare(job: JobContext, session: Session, cases: Sequence[ExecutedJob]) -> Judges:
    """Load what executed jobs left of one version of a recipe; the result judges them.

    One fit serves all. What cannot even be read is refuted: the judged must not be able to
    stop the judge.
    """
    try:
        return _prepare(job, session, cases)
    except ODD_INPUT as error:
        verdict = _unreadable(error)
        return lambda: [verdict]


def _unreadable(error: Exception) -> Verdict:
    value = f"what was published cannot be evaluated: {type(error).__name__}"
    report = report_of([judged(CHECKS["claim"], value, passed=False)])
    return Verdict(VERIFIER.id, VERIFIER.version, report, {})


def _prepare(job: JobContext, session: Session, cases: Sequence[ExecutedJob]) -> Judges:
    services = job.services
    case, *_ = cases
    model, before, after = case.model, case.before, case.after
    check_logged(services.ledger, model, before, after)
    recipe = recipe_of(model)
    alike = _same_machine(recipe, case)
    if not alike and job.lease.attempt > 1:
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
            environment_equal=alike,
            rows_before=(
                before.statistics_digest,
                digest_of_rows([*digests.values(), *removed]),
            ),
        )
        for one, purge in zip(cases, purges, strict=True)
    ]

    def judge() -> list[Verdict]:
        again = _refitted(services, recipe, rows)
        details = {"rows": str(len(rows))}
        return [
            Verdict(
                VERIFIER.id,
                VERIFIER.version,
                VERIFIER.verify(replace(claim, refitted_digest=again)),
                details,
                repeated=True,
            )
            for claim in claims
        ]

    return judge


def _refitted(services: Services, recipe: Recipe, rows: FitRows) -> str:
    """Return the digest of the judge's own fit.

    Raises NotFittedError where it failed: it is tried again, and refutes nothing.
    """
    try:
        file = process.fit(recipe, rows, process.threads_of(recipe), limits(services))
    except RefusedError as error:
        raise NotFittedError(str(error)) from None
    return hashlib.sha256(file).hexdigest()


def _same_machine(recipe: Recipe, case: ExecutedJob) -> bool:
    """Return whether this process computes as the one that fitted."""
    recorded = case.plan.parameters
    here = process.environment(recipe)
    return all(recorded.get(name) == value for name, value in here.items())
