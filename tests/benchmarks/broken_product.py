"""Campaigns against the product and against broken ones; prints their reports as JSON.

Run as a process of its own: a campaign forks one that has no other thread.
"""

import json
import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from app.backup.folder import Folder
from app.protocols.cases import show_all
from app.protocols.drp import routes
from app.protocols.opendsr import routes as controllers
from app.schemas.requests import Accepted, Receipt
from app.service import acceptance
from app.service.desk import cases
from app.service.intake import challenge, following
from app.service.models import mending, registry
from app.witnesses.rows import Rows
from benchmarks.faults.campaign import Campaign, beginnings, run
from benchmarks.faults.case import Beginning, Case, calls_of, run_case
from benchmarks.faults.layer import Fault
from benchmarks.faults.workloads import WORKLOADS
from lethe.log import watch
from lethe.witness.heads import Heads
from workers.jobs import sweep
from workers.method_audits import report
from workers.secure_sum.client.record import Record
from workers.silos import table


def hasty() -> None:
    """Acknowledge a request whatever became of its commit."""
    honest: Callable[..., Any] = acceptance.submit

    async def submit(*arguments: Any) -> Any:
        try:
            return await honest(*arguments)
        except Exception:
            receipt = Receipt(log_index=10**6, tree_size=1, leaf="", hashes=[], checkpoint="")
            return Accepted(
                id=str(uuid4()), ref=str(uuid4()), state="received", due_at=datetime.now(UTC),
                receipt=receipt, warnings=[],
            )  # fmt: skip

    setattr(acceptance, "submit", submit)  # noqa: B010 - in the place of another


def idle() -> None:
    """Resume nothing that a crash left behind."""
    setattr(sweep, "head_of_queue", lambda *_: None)  # noqa: B010 - a name that it imports


def forgetful() -> None:
    """Name pieces in a followed backup's manifest that are not there."""
    setattr(Folder, "write_all_durably", lambda *_: None)  # noqa: B010 - in the place of another


def careless() -> None:
    """Acknowledge a request, and store nothing."""

    async def submit(*_: Any) -> Any:
        raise OSError

    setattr(acceptance, "submit", submit)  # noqa: B010 - in the place of another
    hasty()


def half_heard() -> None:
    """Take the first record of each request, and forget the others."""
    honest: Callable[..., Any] = acceptance.submit

    async def submit(services: Any, submission: Any) -> Any:
        scope = submission.wanted.scope
        scope = scope.model_copy(update={"records": scope.records[:1]})
        wanted = submission.wanted.model_copy(update={"scope": scope})
        return await honest(services, replace(submission, wanted=wanted))

    setattr(acceptance, "submit", submit)  # noqa: B010 - in the place of another


def forgetting_people() -> None:
    """Let a form open a case each time, and say that a case is withdrawn."""
    setattr(challenge, "conclude", lambda *_: True)  # noqa: B010 - in the place of another
    setattr(following, "withdraw", lambda *_: None)  # noqa: B010 - in the place of another


def forgetting_agents() -> None:
    """Take an envelope for a new one each time, and call nobody back."""
    honest: Callable[..., Any] = vars(routes)["open_envelope"]

    def opened(*arguments: Any) -> Any:
        return replace(honest(*arguments), digest=secrets.token_hex(32))

    setattr(routes, "open_envelope", opened)  # noqa: B010 - a name that it imports
    setattr(routes, "follow", lambda *_: None)  # noqa: B010 - a name that it imports


def forgetting_controllers() -> None:
    """Answer that a request is cancelled, without a commit, and call nobody back."""
    setattr(controllers, "withdraw_all", show_all)  # noqa: B010 - a name that it imports
    setattr(controllers, "follow", lambda *_: None)  # noqa: B010 - a name that it imports


def unwitnessed() -> None:
    """Store no quorum for a size that has a row."""
    setattr(Rows, "is_later", lambda *_: False)  # noqa: B010 - in the place of another
    setattr(Rows, "witnessed", lambda *_: (10**6, ""))  # noqa: B010 - in the place of another


def unclosed() -> None:
    """Say that a case is closed, without a commit."""
    setattr(cases, "close", lambda services, ref, _: cases.show(services, ref))  # noqa: B010


def unmended() -> None:
    """Say that a model will be mended, and leave no job."""

    def shown(services: Any, ref: str) -> Any:
        with services.reading() as session:
            return registry.show(registry.find(session, ref))

    setattr(mending, "mend", shown)  # noqa: B010 - in the place of another


def unsettled() -> None:
    """Let a member of a round not write down how it ended."""
    honest: Callable[..., None] = Record.ended

    def ended(self: Record, *how: Any) -> None:
        path, self.path = self.path, None
        honest(self, *how)
        self.path = path

    setattr(Record, "ended", ended)  # noqa: B010 - in the place of another


def littered() -> None:
    """Leave what silos were asked, and what they answered."""
    for name in ("settle", "sweep"):
        setattr(table, name, lambda *_: None)


def unreported() -> None:
    """Compute an audit, and sign no report."""
    setattr(report, "issue_if_complete", lambda *_: None)  # noqa: B010 - in the place of another


def unproven() -> None:
    """Raise an alarm, and keep no proof of it."""
    setattr(watch, "write_durably", lambda *_: None)  # noqa: B010 - a name that it imports
    setattr(Heads, "keep", lambda *_: None)  # noqa: B010 - in the place of another


def honest(beginning: Beginning, place: Path) -> Campaign:
    """Inject faults into the product as it is."""
    campaign = Campaign()
    run(campaign, beginning, 30, place, said=lambda _: None)
    return campaign


def planted(beginning: Beginning, place: Path) -> Campaign:
    """Run each workload, without a fault, of a product broken so that it must show it."""
    campaign = Campaign()
    for workload, broken in PLANTED.items():
        campaign.add(run_case(Case(workload, None), beginning, place, broken))
    return campaign


def found(name: str, beginning: Beginning, place: Path) -> Campaign:
    """Inject faults of one kind until one shows what is broken."""
    campaign = Campaign()
    broken, workload, start, mode = BROKEN[name]
    counts, _ = calls_of(WORKLOADS[workload], beginning, place)
    sites = [site for site in counts if site.startswith(start)]
    assert sites, counts
    for site in sites:
        outcome = run_case(Case(workload, Fault(site, 1, mode)), beginning, place, broken)
        campaign.add(outcome)
        if outcome.bad:
            break
    return campaign


def main() -> None:
    """Run all campaigns on one beginning."""
    with beginnings("sqlite") as ([beginning], place):
        campaigns = {"honest": honest(beginning, place), "planted": planted(beginning, place)}
        campaigns |= {name: found(name, beginning, place) for name in BROKEN}
    reports = {name: campaign.report() for name, campaign in campaigns.items()}
    sys.stdout.write(json.dumps(reports))


BROKEN = {
    "hasty": (hasty, "erase", "commit ", "failed"),
    "idle": (idle, "erase", "commit ", "killed"),
    "forgetful": (forgetful, "follow", "rename app/backup/pieces", "killed"),
}
# Broken so that no fault is needed: the workload itself must show it.
PLANTED = {
    "table": half_heard,
    "refit": half_heard,
    "intake": forgetting_people,
    "agent": forgetting_agents,
    "controller": forgetting_controllers,
    "late": unwitnessed,
    "case": unclosed,
    "round": unsettled,
    "network": careless,
    "silos": littered,
    "audit": unreported,
    "mend": unmended,
    "watch": unproven,
    "fork": unproven,
}

if __name__ == "__main__":
    main()
