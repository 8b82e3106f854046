"""A network's worker dies between rounds, or anywhere else: the next one goes on."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from sqlmodel import Session, select

from app import steps
from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import Artifact, Certificate, Record, Tombstone
from tests import small_network
from tests.installation import Installation, install
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.attempts.planted import plant
from tests.workers.jobs.families.network import logistic, networks
from workers.families.network import training
from workers.methods.network import cycles
from workers.methods.network.recovery import LastingDamageError
from workers.training.fedavg.in_process import InProcess

OWN = [name for name in steps.STEPS if name.split(".")[0] in ("execute", "verify", "certify")]
# The method's version, which no test has the power to certify, and the retraining after it.
# The journal has the erased once: with the first.
ONCE = "execute.journaled"
BOTH_ATTEMPTS = [f"{name}@{nth}" for name in OWN if name[:7] != "certify" for nth in (1, 2)]
BOTH_ATTEMPTS.remove(f"{ONCE}@2")
# On the second of three attempts, and where the one before it has just been refuted. PUF keeps two
# checkpoints, HF-KCU the next two.
BETWEEN = ["verify.recorded@1", "execute.checkpoint@3", "execute.written@2"]
# PUF keeps its step and one round, the retraining three rounds.
ROUNDS = [f"execute.checkpoint@{nth}" for nth in (3, 4, 5)]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: what is done to either is the same, see test_in_process.py."""
    return sqlite_url


@pytest.fixture
def trained(settings, ledger) -> Iterator[Installation]:  # type: ignore[no-untyped-def]
    """An installation whose small network is trained."""
    with install(settings) as made:
        networks.register(made)
        yield made
    steps.install(None)


def dies_and_recovers(installed: Installation, step: str) -> None:
    steps.plant(f"{step}=raise")
    with pytest.raises(steps.PlantedFaultError):
        installed.drain()
    steps.install(None)
    installed.recover()


@pytest.mark.parametrize(
    "step", [*BOTH_ATTEMPTS, *ROUNDS, "certify.signed", "certify.committed"]
)
def test_a_worker_that_dies_is_replaced(trained: Installation, step: str) -> None:
    rows = small_network.rows()
    gone = set(rows["records"][rows["clients"] == "c1"].tolist())
    request_id = networks.submit(trained, networks.whole("c1"))
    dies_and_recovers(trained, step)
    trained.check()
    assert networks.request(trained, request_id).state == "certified"
    assert networks.published(trained) == networks.retrained(rows, gone)
    with Session(trained.services.engine) as session:
        assert len(session.exec(select(Certificate)).all()) == 1
        assert len(session.exec(select(Tombstone)).all()) == len(gone)
        assert len(session.exec(select(Record)).all()) == len(rows["records"]) - len(gone)
        kept = session.exec(select(Artifact)).all()
    assert sorted(a.kind for a in kept if a.wrapped_key is not None) == [
        "evidence",
        "head",
        "scores",
        "state",
    ]


def counted(monkeypatch: pytest.MonkeyPatch, deadly: int = 0) -> list[tuple[str, int]]:
    """Return the operation and number of each round from now on; deadly: kills its worker."""
    found: list[tuple[str, int]] = []
    honest = InProcess.run

    def run(self: InProcess, tasks, *, timeout: float = 0.0):  # type: ignore[no-untyped-def]
        found.append((tasks[0].operation, tasks[0].round))
        if tasks[0].round == deadly:
            raise steps.PlantedFaultError("a round")
        return honest(self, tasks, timeout=timeout)

    monkeypatch.setattr(InProcess, "run", run)
    return found


def test_rounds_kept_before_a_crash_are_not_trained_again(
    trained: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted(monkeypatch)
    networks.submit(trained, networks.whole("c1"), method="retrain")
    dies_and_recovers(trained, "execute.checkpoint@2")
    # The last three are the verifier's own.
    assert [number for _, number in asked] == [1, 2, 3, 1, 2, 3]


def test_rounds_kept_by_other_code_are_trained_again(
    trained: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade: the certificate names the code of the worker that publishes."""
    asked = counted(monkeypatch)
    networks.submit(trained, networks.whole("c1"), method="retrain")
    steps.plant("execute.checkpoint@2=raise")
    with pytest.raises(steps.PlantedFaultError):
        trained.drain()
    steps.install(None)
    monkeypatch.setattr(training, "code_digest", lambda *_: 64 * "0")
    trained.recover()
    assert [number for _, number in asked] == [1, 2, *[1, 2, 3] * 2]


def gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every approximation end without a model, after it has kept what it did."""

    def refuse(*_: object) -> None:
        raise LastingDamageError("planted")

    monkeypatch.setattr(cycles, "check_lasting", refuse)


LASTING = {"puf-special": {"recovery": {"rounds": 1, "lasting": 5.0}}}


def test_a_retraining_that_a_method_gave_way_to_goes_on_where_it_was(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The method is not begun anew, which would end in the same way and cost its rounds."""
    with install(settings) as made:
        networks.register(made, settings=LASTING)
        gives_way(monkeypatch)
        asked = counted(monkeypatch)
        request_id = networks.submit(made, networks.whole("c1"))
        dies_and_recovers(made, "execute.checkpoint@4")
        retraining = [one for one in asked if one[1] == 2]
        assert len(retraining) == 2  # once of the worker, and once of the verifier
        found = networks.statement(made, request_id).predicate.method
        assert escalation_line(found.parameters) == "puf-special: LastingDamage"
        made.check()


@pytest.mark.parametrize("method", ["retrain", "puf-special"])
@pytest.mark.parametrize("alike", [True, False])
def test_a_retraining_kills_no_worker_without_end(
    settings: Settings,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    alike: bool,
) -> None:
    """Its checkpoints are no progress if a method, or other workers, begin it anew each time."""
    with install(settings) as made:
        networks.register(made, settings=LASTING)
        gives_way(monkeypatch)
        died = counted(monkeypatch, deadly=2)
        request_id = networks.submit(made, networks.whole("c1"), method=method)
        for number in range(made.settings.max_tries + 3):
            if not alike:
                monkeypatch.setattr(training, "code_digest", lambda *_, n=number: f"{n:064}")
            with suppress(steps.PlantedFaultError):
                made.recover()
        assert [number for _, number in died].count(2) == made.settings.max_tries
        assert networks.request(made, request_id).state == "needs-decision"


@pytest.mark.parametrize("step", BETWEEN)
def test_a_worker_that_dies_during_an_escalation_is_replaced_on_the_same_attempt(  # type: ignore[no-untyped-def]
    settings, ledger, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    rows = small_network.rows()
    gone = set(rows["records"][rows["clients"] == "c1"].tolist())
    attempt = {"method": "hf-kcu", "settings": {"recovery": {"rounds": 1}}}
    policy = {**small_network.manifest()["policy"], "ladder": [attempt], "budget": "100"}
    with install(settings) as made:
        networks.register(made, policy=policy)
        plant(monkeypatch, *["yeom:auc"] * 4)  # every approximation is refuted
        request_id = networks.submit(made, networks.whole("c1"))
        dies_and_recovers(made, step)
        made.check()
        assert networks.request(made, request_id).state == "certified"
        assert [version.step for version in networks.versions(made)] == [1, 1, 2, 3]
        assert networks.published(made) == networks.retrained(rows, gone)
        escalation = escalation_line(
            networks.statement(made, request_id).predicate.method.parameters
        )
        assert escalation == " | ".join(
            f"{name}: FAIL (yeom:auc: planted)"
            for name in ("puf-special", "hf-kcu(recovery.rounds=1)")
        )
        with Session(made.services.engine) as session:
            kept = session.exec(select(Artifact)).all()
        readable = [artifact.kind for artifact in kept if artifact.wrapped_key is not None]
        assert sorted(readable) == ["evidence", "head", "scores", "scores", "state"]


@pytest.mark.parametrize("step", [n for n in OWN if n.startswith("execute.") and n != ONCE])
def test_a_worker_that_dies_in_the_first_training(  # type: ignore[no-untyped-def]
    settings, ledger, step: str
) -> None:
    with install(settings) as made:
        steps.plant(f"{step}=raise")
        with pytest.raises(steps.PlantedFaultError):
            networks.register(made)
        steps.install(None)
        made.recover()
        assert networks.model(made).state == "ready"
        assert networks.published(made) == networks.retrained(small_network.rows(), set())
        made.check()


def test_a_certified_release_is_made_once_and_its_secret_is_deleted(  # type: ignore[no-untyped-def]
    settings, ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two noises for nearly one centre the mean would have less: nobody is asked again."""
    with install(settings) as installed:
        logistic.register(installed, logistic.NOISE, method="certified-newton")
        request_id = networks.submit(installed, networks.some("r1"))
        steps.plant("execute.checkpoint=raise")
        with pytest.raises(steps.PlantedFaultError):
            installed.drain()
        steps.install(None)
        monkeypatch.setattr(InProcess, "run", None)
        installed.recover()
        found = networks.statement(installed, request_id).predicate
        assert found.guarantee.class_ == "certified-approximate"
        assert found.method.parameters["noise.release"] == "1 of 2"
        with Session(installed.services.engine) as session:
            kept = session.exec(select(Artifact)).all()
        kinds = {a.kind for a in kept if a.wrapped_key is not None}
        assert kinds == {"evidence", "head", "state"}
        installed.check()
