"""Manipulation by a provider between the members' messages and the certificate is detected."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, col, select

from app import steps
from models import Artifact, Certificate, Model, Round, Verification
from tests.installation import Installation, head, state
from tests.workers.secure_sum.client.federation import Masked
from tests.workers.secure_sum.client.test_masked_model import FOUR, erase_records
from workers.families.masked import rounds, transcript
from workers.families.masked.case import RoundCase, RoundSum, apply_sum
from workers.methods.ridge.statistics.gram import RidgeStatistics
from workers.methods.ridge.statistics.message import Message

Patch = pytest.MonkeyPatch


def nothing_subtracted(patch: Patch) -> None:
    """The earlier version is published again, as if the records had been erased."""

    def apply(case: RoundCase, found: RoundSum) -> Message:
        assert case.state is not None
        return Message(case.state.statistics, np.array(case.counts, dtype=np.int64))

    patch.setattr(rounds, "apply_sum", apply)


def one_entry_off(patch: Patch) -> None:
    def apply(case: RoundCase, found: RoundSum) -> Message:
        whole = apply_sum(case, found)
        gram = whole.statistics.gram.copy()
        gram[1, 1] += 2  # by one it would be no square of any code, and refused
        inner = RidgeStatistics(gram, whole.statistics.moment.copy(), whole.statistics.rows)
        return replace(whole, statistics=inner)

    patch.setattr(rounds, "apply_sum", apply)


def another_transcript(patch: Patch) -> None:
    """The earlier statistics are replaced in the verifier's input."""

    def encode(found: Any) -> bytes:
        before = found.before
        gram = before.gram.copy()
        gram[0, 0] += 1
        other = RidgeStatistics(gram, before.moment.copy(), before.rows)
        return transcript.encode_transcript(replace(found, before=other))

    patch.setattr(rounds, "encode_transcript", encode)


VIOLATIONS: dict[str, tuple[Callable[[Patch], None], int]] = {
    "nothing-subtracted": (nothing_subtracted, 1),
    "one-entry-off": (one_entry_off, 1),
    "another-transcript": (another_transcript, 1),
}


@pytest.mark.parametrize(("plant", "number"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_fails_the_request_and_quarantines_the_model(
    learned: Masked, monkeypatch: Patch, plant: Callable[[Patch], None], number: int
) -> None:
    installation = learned.installation
    request_id = erase_records(installation, *learned.owned("c0")[:2])
    plant(monkeypatch)
    round_id = learned.round(*FOUR)
    monkeypatch.undo()
    assert learned.view(round_id)["state"] == "done", learned.view(round_id)
    with Session(installation.services.engine) as session:
        found = session.get_one(Verification, request_id)
        failed = [check["number"] for check in found.report["checks"] if not check["passed"]]
        assert number in failed
        assert found.result == "FAIL"
        assert session.exec(select(Certificate)).all() == []
        assert session.exec(select(Model.state)).all() == ["quarantined"]
    assert state(installation, request_id) == "failed"
    installation.dispatcher.sweep(installation.services)
    with Session(installation.services.engine) as session:
        assert set(session.exec(select(Round.transcript_id))) == {None}
        kept = select(Artifact.kind).where(col(Artifact.wrapped_key).is_not(None))
        assert "round" not in set(session.exec(kept))
    refused = learned.open(*FOUR)
    assert refused.status_code == 409, "a quarantined model takes no rounds"
    installation.check()


STEPS = [
    name
    for name in steps.STEPS
    if name.split(".")[0] in ("execute", "verify", "certify")
    and name not in steps.NETWORK_STEPS
]


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_that_dies_at_a_step_of_a_round_is_replaced(
    learned: Masked, step: str
) -> None:
    installation: Installation = learned.installation
    wanted = learned.owned("c2")[:1]
    request_id = erase_records(installation, *wanted)
    opened = learned.open(*FOUR).json()["id"]
    learned.take([learned.joining(opened, client) for client in FOUR])
    steps.plant(f"{step}=raise")
    with pytest.raises(steps.PlantedFaultError):
        installation.drain()
    steps.install(None)
    installation.recover()
    assert learned.view(opened)["state"] == "done"
    assert state(installation, request_id) == "certified"
    assert head(installation) == learned.head_without({*wanted, *learned.owned("c4")})
    with Session(installation.services.engine) as session:
        assert len(session.exec(select(Certificate)).all()) == 1
    installation.check()
