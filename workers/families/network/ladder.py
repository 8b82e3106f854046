"""The attempt after a network's refuted result: another method, or the retraining.

Another approximation is tried only if a test of forgetting or of utility refuted this one. All
are judged on the same rows by the same attacks: if the rows are too few, or an attack had no
power before the erasure, every other verdict would be inconclusive too.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session, col, or_, select

from app.service.methods import last_step, spelled
from app.service.queue import DEADLINE_MARGIN
from models import ErasureRequest, Job, Record
from models.database.types import clock
from workers.cases.case import ExecutedJob, NextAttempt
from workers.families.network.config import NetworkConfig, network_config, policy_of
from workers.judge.attacks.registry import ATTACKS
from workers.judge.base import Report
from workers.judge.checks import ODD_INPUT
from workers.judge.policy.document import write_ladder
from workers.judge.policy.policy import LadderStep, Policy
from workers.judge.samples.empirical import VERIFIER
from workers.leases.lease import JobContext, Lease
from workers.methods.network.base import UnlearningMethod
from workers.methods.network.estimate import Sizes, most_flops, retraining_flops
from workers.methods.network.retrain import Retrain

RETRAIN, EXACT = Retrain().id, "exact-retrained"
USE = ("retained-accuracy", "test-accuracy")
# If the verdict says nothing about the method, another method does not help.
LATE = "too near the deadline"
NO_USE = "skipped, it would be judged no better"


def next_attempt(
    job: JobContext, session: Session, case: ExecutedJob, report: Report
) -> NextAttempt | None:
    """Return the attempt after a judgement that was not PASS, None after the last one."""
    try:
        policy = policy_of(case.model)
        if case.plan.claim == VERIFIER.id:
            return _after_approximation(session, job.lease, case, report, policy)
    except ODD_INPUT:  # the registration differs from the stored one; the judge has reported it
        pass
    if case.plan.claim == EXACT and job.lease.step > 1:
        return None  # the last attempt: a person decides
    # A refuted retraining is repeated from stored data. A refuted proof is not fixed by another
    # approximation either.
    return NextAttempt(last_step(case.model.config), RETRAIN)


def is_of_method(report: Report) -> bool:
    """Return whether only tests of forgetting or utility failed, and one was refuted."""
    failed = [check.name for check in report.checks if not check.passed]
    return report.result == "FAIL" and all(
        name in USE or name == "canary" or name.partition(":")[0] in {*ATTACKS, "distance"}
        for name in failed
    )


def label(step: LadderStep) -> str:
    """Return a step's name in certificates and the log."""
    return spelled(write_ladder([step])[0])


def _after_approximation(
    session: Session, lease: Lease, case: ExecutedJob, report: Report, policy: Policy
) -> NextAttempt:
    config = network_config(case.model)
    request = session.get_one(ErasureRequest, lease.request_id)
    job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    worthwhile = is_of_method(report) and job.before_id is not None
    tried = [config.method(request.method)]
    tried += [
        config.method(step.method, step.settings) for step in policy.ladder[: lease.step - 1]
    ]
    limits = _limits(session, case, config, policy, first_due(session, lease))
    skipped: list[str] = []
    for number, step in enumerate(policy.ladder, 2):
        if number <= lease.step:
            continue
        method = config.method(step.method, step.settings)
        why = NO_USE
        if worthwhile:
            why = "skipped, it was tried" if method in tried else limits.forbid(method)
        if not why:
            return NextAttempt(number, label(step), tuple(skipped), compared=True)
        skipped.append(f"{label(step)}: {why}")
    return NextAttempt(2 + len(policy.ladder), RETRAIN, tuple(skipped))


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """What the policy's budget and the deadline leave for another approximation.

    whole: operations of a retraining; left: of the budget; judging: of the models that a judge
    trains itself. pace: seconds per operation, measured on the last attempt.
    """

    config: NetworkConfig
    sizes: Sizes
    now: datetime
    due: datetime
    whole: int
    left: float
    judging: int
    pace: float

    def forbid(self, method: UnlearningMethod) -> str:
        """Return why a method cannot be tried any more, empty if it can."""
        needed = most_flops(method, self.config.network, self.config.training, self.sizes)
        if needed is None:
            # No estimate: assume as much as the retraining that it would save.
            needed = self.whole
        if needed > self.left:
            return "skipped, over the budget"
        # There must be time for its judge's models, the retraining, and its repetition.
        needed += self.judging + 2 * self.whole
        seconds = timedelta(seconds=self.pace * needed)
        if is_late(self.now, self.due, seconds):
            return f"skipped, {LATE}"
        return ""


def _limits(
    session: Session, case: ExecutedJob, config: NetworkConfig, policy: Policy, due: datetime
) -> AttemptLimits:
    sizes = _sizes(session, case, config)
    whole = retraining_flops(config.network, config.training, sizes.retained)
    parameters = case.plan.parameters
    last = int(parameters.get("cost.flops", "0"))
    earlier = int(parameters.get("escalation.flops", "0"))
    seconds = float(parameters.get("cost.seconds", "0"))
    return AttemptLimits(
        config,
        sizes,
        clock(session),
        due,
        whole,
        left=policy.budget * whole - last - earlier,
        judging=judging_flops(config, policy, sizes),
        pace=seconds / last if last else 0.0,
    )


def first_due(session: Session, lease: Lease) -> datetime:
    """Return the earliest due time among requests executed in the leased job's version."""
    waiting = (
        select(ErasureRequest.due_at)
        .join(Job, col(Job.request_id) == col(ErasureRequest.id))
        .where(
            Job.model_id == lease.model_id,
            or_(col(Job.id) == lease.job_id, col(Job.stage) == "verify"),
            col(Job.done_at).is_(None),
        )
    )
    found: datetime = min(session.exec(waiting))
    return found


def is_late(now: datetime, due: datetime, seconds: timedelta = timedelta()) -> bool:
    """Return whether work of this duration would end too close to the due time.

    `now` is the database's time: a method that is skipped as late is not tried again.
    """
    return now + seconds + DEADLINE_MARGIN > due


def judging_flops(config: NetworkConfig, policy: Policy, sizes: Sizes) -> int:
    """Estimate the operations for the models that an attempt's judge trains itself."""
    half = sizes.retained + (sizes.forget + sizes.validation) // 2
    each = [half] * (policy.references or 0) + [sizes.retained] * bool(policy.distances)
    return sum(retraining_flops(config.network, config.training, rows) for rows in each)


def _sizes(session: Session, case: ExecutedJob, config: NetworkConfig) -> Sizes:
    query = select(Record.record).where(Record.model_id == case.model.id)
    held = [config.is_held_out(record) for record in session.exec(query)]
    # Some erased rows may have been held out: at most this many were trained on.
    return Sizes(held.count(False), len(case.plan.rows_gone), held.count(True))
