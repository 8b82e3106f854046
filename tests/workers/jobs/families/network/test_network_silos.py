"""A deep model with rounds on silos: the same bits as in one process."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.ledger.sequencer import Ledger
from app.reconcile.model_events import model_events
from app.service.access import silo_keys
from app.settings import Settings
from tests import small_network
from tests.doubles.silos import InlineSilos
from tests.installation import Installation, install
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.families.network import networks
from workers.families.base import client_rows
from workers.silos import keys
from workers.silos.engine import silo_of
from workers.training.fedavg.base import ClientData

GONE = "c1"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: tests/workers/silos tests silos on both."""
    return sqlite_url


@contextmanager
def on_silos(settings: Settings) -> Iterator[tuple[Installation, InlineSilos]]:
    with install(settings.model_copy(update={"silos": 2})) as made:
        silos = InlineSilos(client_rows)
        silos.services = made.services
        made.dispatcher.ask = silos.ask  # type: ignore[method-assign]
        for silo in range(2):
            keys.register(made.settings, silo)
        yield made, silos


@pytest.mark.parametrize("method", ["puf-special", "puf-regular", "hf-kcu", "retrain"])
def test_every_version_is_the_one_of_a_single_process(
    settings: Settings, ledger: Ledger, method: str
) -> None:
    with on_silos(settings) as (made, silos):
        networks.register(made)
        assert silo_keys.stored(made.settings).keys() == {0, 1}
        known = model_events(made.services.ledger, small_network.MODEL)[0][1].digests
        assert silo_keys.entries(silo_keys.stored(made.settings)).items() <= known.items()
        request_id = networks.erase(made, networks.whole(GONE), method=method)
        assert networks.request(made, request_id).state == "certified"
        there = [version.head_digest for version in networks.versions(made)]
        parameters = networks.statement(made, request_id).predicate.method.parameters
        assert parameters["engine"] == "silos:2"
        assert "silos-answered" not in escalation_line(parameters)  # all silos answered
        assert {q for group in silos.asked for q in group.values()} == {"silo-0", "silo-1"}
    assert there == networks.heads_in_process(method, GONE)


def test_a_target_whose_silo_is_gone_is_refused_with_a_remedy(
    settings: Settings, ledger: Ledger
) -> None:
    with on_silos(settings) as (made, silos):
        networks.register(made)
        before = networks.published(made)
        silos.load = _gone
        request_id = networks.erase(made, networks.whole(GONE), method="puf-special")
        assert networks.request(made, request_id).state == "executing"  # the silo may come back
        for _ in range(made.settings.max_tries):
            made.recover()
        refused = networks.request(made, request_id)
        assert refused.state == "refused"
        assert "hf-kcu" in str(refused.reason)
        assert "retrain" in str(refused.reason)
        assert networks.published(made) == before


def test_a_retraining_waits_for_silos_that_are_all_gone(
    settings: Settings, ledger: Ledger
) -> None:
    with on_silos(settings) as (made, silos):
        networks.register(made)
        silos.load = _gone
        request_id = networks.erase(made, networks.whole(GONE), method="retrain")
        assert networks.request(made, request_id).state == "executing"
        (job,) = [job for job in networks.jobs(made) if job.kind == "erase"]
        assert job.error == "Too few silos answered: RoundLostError at execute"
        silos.load = client_rows
        made.recover()
        assert networks.request(made, request_id).state == "certified"


def test_a_client_that_fails_is_left_out_and_the_verifier_leaves_it_out_too(
    settings: Settings, ledger: Ledger
) -> None:
    with on_silos(settings) as (made, silos):
        networks.register(made)

        def load(services, session, model_id, client, positions):  # type: ignore[no-untyped-def]
            if client == "c2":
                raise OSError
            return client_rows(services, session, model_id, client, positions)

        silos.load = load
        request_id = networks.erase(made, networks.whole(GONE), method="retrain")
        found = networks.statement(made, request_id).predicate
        assert found.guarantee.class_ == "exact-retrained"
        assert found.method.parameters["retrain.missing"] == "3"  # one for each round
        assert "'c2'" not in str(found)


def test_the_small_network_uses_both_silos() -> None:
    clients = {f"c{number}" for number in range(small_network.CLIENTS)}
    assert {silo_of(client, 2) for client in clients} == {0, 1}


def _gone(*_: object) -> ClientData:
    raise OSError
