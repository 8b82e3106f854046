"""After any sequence of additions, erasures and returns, the model is a fit of what remains."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from sqlalchemy import update
from sqlmodel import Session, select

from app.ledger.startup import init_log
from app.settings import Settings
from models import ErasureRequest, Job, Model, ModelVersion, Record, Tombstone
from models.database.session import make_engine
from models.database.types import utcnow
from tests.conftest import ORIGIN
from tests.doubles.dispatcher import STAGES
from tests.fuzz import fuzz
from tests.installation import Installation, install
from tests.small import MODEL, Caller, pack, rows
from tests.workers.jobs.lineage.oracle import current_head, current_statistics, refit
from workers.artifacts import decode_head
from workers.jobs import sweep

METHODS = ["ridge-exact", "ridge-woodbury", "acu"]
POOL = 18  # records of a history; the first STARTED of them are registered
STARTED = 12
CLIENTS, SUBJECTS = 3, 2


def pool() -> dict[str, Any]:
    """Record i is "r<i>", of client c<i mod 3> and subject s<i mod 2>."""
    numbers = range(POOL)
    return {
        **rows(seed=11, count=POOL),
        "clients": np.array([f"c{number % CLIENTS}" for number in numbers]),
        "subjects": np.array([f"s{number % SUBJECTS}" for number in numbers]),
    }


ALL = pool()


def part(numbers: list[int]) -> bytes:
    return pack({name: values[numbers] for name, values in ALL.items()})


@pytest.mark.parametrize("method", METHODS)
def test_erased_added_back_and_erased_again(installation: Installation, method: str) -> None:
    installation.ready(method=method)
    contributor = Caller(installation.caller.http, installation.caller.token, keyid="client")
    contributor.register_key(role="client")
    heads, digests = [], []
    everything, fewer = list(range(40)), [n for n in range(40) if n not in (1, 6, 7)]
    path = f"/v1/models/{MODEL}/contributions?add_back=true"
    back = pack({name: values[[1, 6, 7]] for name, values in rows().items()})
    for kept in (fewer, everything, fewer):
        if kept is fewer:
            answer = installation.caller.erase_records("r1", "r6", "r7")
        else:
            answer = contributor.signed("POST", path, back, content_type="application/x-npz")
        assert answer.status_code == 202, answer.text
        installation.drain()
        head, digest = refit(rows(), kept)
        assert current_statistics(installation) == digest
        heads.append(current_head(installation))
        digests.append(digest)
        close = np.abs(decode_head(heads[-1])[0] - decode_head(head)[0].astype(np.float64))
        assert close.max() <= 1e-6  # at most half a unit in the last place of float32
        if method == "ridge-exact":
            assert heads[-1] == head
    assert digests[0] == digests[2] != digests[1]
    with Session(installation.services.engine) as session:
        states = [request.state for request in session.exec(select(ErasureRequest))]
        stones = {stone.request_id for stone in session.exec(select(Tombstone))}
        latest = session.exec(
            select(ErasureRequest.id).order_by(ErasureRequest.log_index.desc())  # type: ignore[attr-defined]
        ).first()
    assert states == ["certified"] * 2
    assert stones == {latest}
    installation.check()


# --- random interleavings -------------------------------------------------------------------
some = st.lists(st.integers(0, POOL - 1), min_size=1, max_size=4, unique=True)
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), some),
    st.tuples(st.just("add back"), some),
    st.tuples(st.just("erase"), some),
    st.tuples(st.just("erase client"), st.integers(0, CLIENTS - 1)),
    st.tuples(st.just("erase subject"), st.integers(0, SUBJECTS - 1)),
    st.tuples(st.just("work"), st.integers(1, 6)),
)
HISTORIES = st.lists(OPERATIONS, min_size=2, max_size=10)


def scope_of(what: str, how: Any) -> tuple[dict[str, Any], set[int]]:
    """Return the scope of an erasure and the records that it covers."""
    if what == "erase client":
        own = {number for number in range(POOL) if number % CLIENTS == how}
        return {"level": "client", "client": f"c{how}"}, own
    if what == "erase subject":
        own = {number for number in range(POOL) if number % SUBJECTS == how}
        return {"level": "subject", "subject": f"s{how}"}, own
    return {"level": "sample", "records": [f"r{number}" for number in how]}, set(how)


@dataclass
class History:
    """The accepted history of one model, and the expected result."""

    installation: Installation
    ref: str
    method: str
    accepted: list[tuple[str, set[int], str]] = field(default_factory=list)

    def begin(self) -> None:
        arrays = {name: values[:STARTED] for name, values in ALL.items()}
        answer = self.installation.caller.register_model(
            arrays, ref=self.ref, method=self.method
        )
        assert answer.status_code == 201, answer.text
        self.installation.drain()

    def perform(self, what: str, how: Any, contributor: Caller) -> None:
        if what == "work":
            nudges = self.installation.dispatcher.nudges
            for _ in range(how):
                if nudges:
                    job_id, stage = nudges.popleft()
                    STAGES[stage](self.installation.services, job_id)
            return
        if what.startswith("add"):
            path = f"/v1/models/{self.ref}/contributions"
            path += "?add_back=true" if what == "add back" else ""
            answer = contributor.signed(
                "POST", path, part(how), content_type="application/x-npz"
            )
            meant = set(how)
        else:
            scope, meant = scope_of(what, how)
            body = json.dumps({"model": self.ref, "scope": scope}).encode()
            answer = self.installation.caller.signed("POST", "/v1/requests", body)
        if answer.status_code == 202:
            self.accepted.append((what, meant, answer.headers["location"]))
        else:
            assert answer.status_code in (404, 409), answer.text

    def finish(self) -> None:
        """End all waits and run all work."""
        long_ago = utcnow() - timedelta(hours=2)
        with Session(self.installation.services.engine) as session:
            session.connection().execute(update(Job).values(created_at=long_ago))
            session.commit()
        self.installation.drain()
        for _ in range(2 * len(self.accepted) + 1):
            if not sweep.run(self.installation.services):
                return
            self.installation.drain()
        raise AssertionError("the sweep finds work that does not end")

    def check(self) -> None:
        """Replay the history step by step, and compare the results."""
        kept, erased = set(range(STARTED)), set[int]()
        for what, meant, location in self.accepted:
            state = self.installation.caller.http.get(location).json()["state"]
            if what.startswith("add"):
                allowed = not meant & kept and (what == "add back" or not meant & erased)
                assert state == ("learned" if allowed else "failed")
                if allowed:
                    kept |= meant
                    erased -= meant
                continue
            assert state == ("certified" if meant & kept else "refused")
            erased |= meant & kept
            kept -= meant
        with Session(self.installation.services.engine) as session:
            model = session.exec(select(Model).where(Model.ref == self.ref)).one()
            held = session.exec(select(Record.record).where(Record.model_id == model.id))
            assert set(held) == {f"r{number}" for number in kept}
            stones = session.exec(select(Tombstone).where(Tombstone.model_id == model.id)).all()
            assert len(stones) == len(erased)
            version = session.exec(
                select(ModelVersion).where(
                    ModelVersion.model_id == model.id,
                    ModelVersion.number == model.current_version,
                )
            ).one()
            head = self.installation.services.artifacts.get(session, version.head_id)
        expected, digest = refit(ALL, sorted(kept))
        assert version.statistics_digest == digest
        assert version.retained_count == len(kept)
        if self.method == "ridge-exact":
            assert head == expected


def tell(installation: Installation, method: str, history: list[tuple[str, Any]]) -> None:
    with Session(installation.services.engine) as session:
        ref = f"m{len(session.exec(select(Model)).all())}"
    told = History(installation, ref, method)
    told.begin()
    contributor = Caller(
        installation.caller.http, installation.caller.token, keyid=f"client-{ref}"
    )
    contributor.register_key(role="client")
    for what, how in history:
        told.perform(what, how, contributor)
    told.finish()
    told.check()


@pytest.fixture
def on_file(
    sqlite_url: str, data_dir: Path, request: pytest.FixtureRequest
) -> Iterator[Installation]:
    """An installation on SQLite in which `param` requests wait for one another."""
    made = Settings(
        database_url=sqlite_url,
        data_dir=data_dir,
        origin=ORIGIN,
        decide="at-once",
        batch_min_requests=request.param,
        batch_max_wait_seconds=3600 if request.param > 1 else 0,
    )
    engine = make_engine(sqlite_url)
    init_log(made, engine)
    engine.dispose()
    with install(made) as opened:
        opened.caller.register_key()
        yield opened
        opened.check()  # once for all histories: each has its own model


@pytest.mark.parametrize("on_file", [1, 3], indirect=True)
@given(method=st.sampled_from(METHODS), history=HISTORIES)
@fuzz(20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_history_ends_as_a_fit_of_what_remains(
    on_file: Installation, method: str, history: list[tuple[str, Any]]
) -> None:
    tell(on_file, method, history)


LONG: list[tuple[str, Any]] = [
    ("erase", [0, 1]),
    ("erase client", 2),
    ("add", [12, 13]),
    ("erase", [12]),  # refused with 409: it is still being learned
    ("work", 6),
    ("add back", [0]),  # refused with 409: it is still there, or already back
    ("erase subject", 1),
    ("work", 30),
    ("add", [2]),
    ("add back", [2, 5]),
    ("work", 30),
    ("erase", [2]),
    ("erase client", 2),
    ("add back", [1, 2, 3]),
]


def test_one_long_history_on_both_databases(installation: Installation) -> None:
    installation.caller.register_key()
    tell(installation, "ridge-exact", LONG)
    installation.check()
