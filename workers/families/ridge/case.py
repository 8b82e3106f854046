"""The verifier's input for a ridge head: retained rows or sums, and the artifacts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import inf, nextafter

from sqlmodel import Session

from app.service.context import Services
from lethe.catalogue import CHECKS, data_of
from models import Model
from workers.artifacts import decode_head
from workers.cases.case import ExecutedJob, Judges, Verdict
from workers.cases.claims import purge_claims, retained_commitments
from workers.families.ridge.rows import RowStream, chain_claim, contents_claim, link_claim
from workers.families.ridge.stored import (
    MessageBlock,
    budget,
    decode_block,
    load_before,
    load_state,
    ridge_config,
)
from workers.judge import registry
from workers.judge.base import Verifier
from workers.judge.checks import judged, report_of
from workers.judge.ridge import freivalds
from workers.judge.ridge.claim import (
    ClaimedStatistics,
    ExactClaim,
    MaskedClaim,
    Mode,
    RemovalClaim,
    RidgeClaim,
)
from workers.judge.ridge.verdict import VERIFIERS_OF_HEADS
from workers.leases.lease import JobContext
from workers.lineage.logged import NotLoggedError, check_logged
from workers.methods.ridge.base import RidgeConfig


@dataclass(frozen=True, slots=True, eq=False)
class Summed:
    """Replaces blocks for rows of a masked round: its sum, and their ids."""

    claim: MaskedClaim
    records: list[str]


def prepare(
    job: JobContext,
    session: Session,
    cases: Sequence[ExecutedJob],
    seed: bytes,
    load_sum: Callable[[], Summed] | None = None,
) -> Judges:
    """Load the results of executed jobs on a ridge head; the returned function judges them.

    The head, the sums and the rows are those of the version that all of them produced. Versions
    whose table rows differ from the log are refuted at once. load_sum: loads the last round's
    sum, for a model whose rows come in masked rounds.
    """
    services, lease = job.services, job.lease
    case, *_ = cases
    try:
        check_logged(services.ledger, case.model, case.before, case.after)
    except NotLoggedError as error:
        return partial(_unlogged, registry.get(case.plan.claim), str(error))
    plan, model, after = case.plan, case.model, case.after
    rows = RowStream(services, lease.model_id) if data_of(model.config).rows_here else None
    blocks = [] if rows is not None else _message_blocks(services, session, lease.model_id)
    ids = [record for block in blocks for record in block.records]
    summed = None if load_sum is None else load_sum()
    if summed is not None:
        ids = summed.records
    commitments = retained_commitments(session, model, ids) if ids else []
    config = ridge_config(model)
    # The head that clients download, not the solver's; the witness only helps to judge it.
    head, _ = decode_head(services.artifacts.get(session, after.head_id))
    state = load_state(services, session, after)
    ridge = RidgeClaim(
        dimension=config.dimension,
        classes=config.classes,
        exponents=config.exponents,
        bits=config.bits,
        penalty=config.penalty,
        statistics_digest=after.statistics_digest,
        head=head,
        witness=state.witness,
        bound=state.bound,
        statistics=ClaimedStatistics(
            state.statistics.gram, state.statistics.moment, state.statistics.rows
        ),
        mode=_mode(model, after.number),
        attested=_attested(config, blocks),
        seed=seed,
    )
    # A round that also adds rows may narrow the posterior, so no comparison is possible.
    if summed is None:
        earlier = load_before(job, session)
    else:
        earlier = None if plan.added else summed.claim.before
    # Sketches are rounded to integers entry by entry: their differences need not be definite.
    if earlier is not None and state.attested == 0:
        ridge = replace(ridge, before=earlier, before_digest=plan.statistics_before)
    if plan.claim == "certified-approximate":
        ridge = replace(ridge, tolerance=budget(model))
    claim = ExactClaim(
        ridge=ridge,
        rows=[] if rows is None else rows,
        chain=chain_claim(case),
        removals=[
            RemovalClaim(link_claim(one), purge)
            for one, purge in zip(cases, purge_claims(services, session, cases), strict=True)
        ],
        messages=_messages(model, blocks),
        masked=None if summed is None else summed.claim,
        unseen=dict(zip(ids, commitments, strict=True)),
        contents=contents_claim(services.ledger, case),
    )
    verifier: Verifier[ExactClaim] = registry.get(plan.claim)

    def judge() -> list[Verdict]:
        of_heads = VERIFIERS_OF_HEADS.get(plan.claim)
        reports = [verifier.verify(claim)] if of_heads is None else of_heads.verify_each(claim)
        details = {
            "rows": str(0 if rows is None else rows.read),
            "messages": str(len(claim.messages or ())),
            "mode": claim.ridge.mode,
            "seed": (claim.ridge.seed or b"").hex(),
        }
        return [Verdict(verifier.id, verifier.version, report, details) for report in reports]

    return judge


def _message_blocks(services: Services, session: Session, model_id: int) -> list[MessageBlock]:
    """Return the statistics that clients sent in place of rows."""
    stored = services.features.load_many(session, model_id)
    blocks = [decode_block(payload) for _, payload in stored]
    return [block for block in blocks if isinstance(block, MessageBlock)]


def _unlogged(verifier: Verifier[ExactClaim], problem: str) -> list[Verdict]:
    report = report_of([judged(CHECKS["log"], problem, passed=False)])
    return [Verdict(verifier.id, verifier.version, report, {})]


def _attested(config: RidgeConfig, blocks: list[MessageBlock]) -> float:
    """Return the maximum distance of the clients' sketches from their rows, as they attested.

    In feature units; computed from the stored messages, not from the method's own record.
    """
    codes = sum(Fraction(block.message.residual) for block in blocks)
    features = codes * Fraction(4) ** max(config.exponents)
    return nextafter(float(features), inf) if features else 0.0


def _messages(model: Model, blocks: list[MessageBlock]) -> list[ClaimedStatistics] | None:
    """Return the statistics that clients sent in place of rows, None if the model has none."""
    if not data_of(model.config).messages_here:
        return None
    sums = [block.message.statistics for block in blocks]
    return [ClaimedStatistics(one.gram, one.moment, one.rows) for one in sums]


def _mode(model: Model, number: int) -> Mode:
    """Return how a version's statistics are judged, by the policy logged at registration."""
    policy = model.config["verification"]
    if not freivalds.suffices(model.config["dimension"]):
        return "full"
    if policy["statistics"] == "alternate":
        return "full" if number % policy["full_every"] == 0 else "freivalds"
    return "freivalds" if policy["statistics"] == "freivalds" else "full"
