"""Swapping rows of models, uploads or jobs never gets rows learned by another's terms."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, col, select

from app.reconcile.findings import FsckReport
from app.reconcile.fsck.vault import fsck_vault
from app.service.context import Services
from app.vault.master import upload_tag
from lethe.log.entries import parse_leaf
from lethe.signing.keys import generate_key
from models import Artifact, Contribution, LogEntry, Model, ModelVersion, Record
from tests import small, small_network
from tests.exchanged import exchange_columns
from tests.installation import Installation
from tests.remote import NPZ, Remote
from tests.small import MODEL, Caller, pack
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.lineage.changed_rows import changing
from workers.families import base as family
from workers.jobs import learn
from workers.lineage.logged import (
    EXCHANGED,
    NO_UPLOAD,
    OTHER_UPLOAD,
    OtherUploadError,
    open_received,
)

OTHER = "other"
TERMS = ("ref", "config", "classes", "method", "extractor")
WAITING = "state = 'received'"
# What is swapped: table, which two rows, columns.
EXCHANGES: dict[str, list[tuple[str, ...]]] = {
    "references": [("models", "1=1", *TERMS, "tombstone_key")],
    "references and entries": [
        ("models", "1=1", *TERMS, "tombstone_key"),
        ("contributions", WAITING, "log_index"),
    ],
    "references without keys": [("models", "1=1", *TERMS)],
    "uploads": [("contributions", WAITING, "upload_id")],
    "uploads and entries": [("contributions", WAITING, "upload_id", "log_index")],
    "models of jobs": [("jobs", "done_at IS NULL", "model_id")],
}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the log's content does not depend on it."""
    return sqlite_url


def exchange(services: Services, what: str) -> None:
    for table, where, *columns in EXCHANGES[what]:
        exchange_columns(services.engine, table, where, *columns)


def registered(at: Installation) -> None:
    """Register two models with different rows and penalties; neither is fitted."""
    assert at.caller.register_model().status_code == 201
    answer = at.caller.register_model(small.rows(seed=1), ref=OTHER, penalty=2.0)
    assert answer.status_code == 201


def contributions(at: Installation) -> list[Contribution]:
    with Session(at.services.engine) as session:
        return list(session.exec(select(Contribution).order_by(col(Contribution.log_index))))


def versions(at: Installation) -> int:
    with Session(at.services.engine) as session:
        return len(session.exec(select(ModelVersion)).all())


def nothing_learned(at: Installation, *before: str, versions_before: int = 0) -> None:
    """Check that all contributions except the earlier ones failed, and left no upload."""
    failed = [one for one in contributions(at) if one.id not in before]
    assert {one.state for one in failed} == {"failed"}
    assert {one.failure for one in failed} <= {OTHER_UPLOAD, NO_UPLOAD}
    assert OTHER_UPLOAD in {one.failure for one in failed}
    assert versions(at) == versions_before
    with Session(at.services.engine) as session:
        uploads = session.exec(select(Artifact).where(Artifact.kind == "upload")).all()
    assert all(one.wrapped_key is None for one in uploads)


def found(at: Installation) -> set[str]:
    """Return fsck's findings on sealed files."""
    services, report = at.services, FsckReport()
    fsck_vault(services.engine, services.artifacts, services.root_secret, report)
    return {finding.check for finding in report.findings}


def feeder(at: Installation, client: str) -> Caller:
    caller = replace(at.caller, keyid=f"feeder-{client}", key=generate_key("ed25519"))
    assert caller.register_key(role="client", client=client).status_code == 201
    return caller


def send(caller: Caller, model: str, client: str, seed: int, first: int = 1000) -> None:
    more = small.rows(seed=seed, count=4, first=first)
    more["clients"] = np.full(4, client)
    path = f"/v1/models/{model}/contributions"
    answer = caller.signed("POST", path, pack(more), content_type=NPZ)
    assert answer.status_code == 202, answer.text


def logged(at: Installation) -> dict[int, str]:
    """Return the digests of uploads in the log by the index of their entries."""
    with Session(at.services.engine) as session:
        entries = list(session.exec(select(LogEntry)))
    found = {one.index: parse_leaf(bytes(one.leaf)).digests for one in entries}
    return {index: said["upload"] for index, said in found.items() if "upload" in said}


@pytest.mark.parametrize("what", EXCHANGES)
def test_no_model_learns_the_rows_of_another(installation: Installation, what: str) -> None:
    registered(installation)
    assert found(installation) == set()
    exchange(installation.services, what)
    assert ("contribution" in found(installation)) == (what != "models of jobs")
    installation.drain()
    nothing_learned(installation)
    if what != "uploads":
        return
    # The registrations failed: they can be repeated.
    registered(installation)
    installation.drain()
    with Session(installation.services.engine) as session:
        assert {one.state for one in session.exec(select(Model))} == {"ready"}
    installation.check()


def test_no_version_is_published_under_another_reference(installation: Installation) -> None:
    """The rows of `models` are swapped once the version is computed."""
    registered(installation)
    change = lambda services: exchange(services, "references")  # noqa: E731
    with changing(installation, "execute.computed", change):
        installation.drain()
    failures = {one.failure for one in contributions(installation)}
    assert failures == {EXCHANGED, OTHER_UPLOAD}
    assert versions(installation) == 0


@pytest.mark.full
def test_no_rows_are_learned_by_terms_that_are_there_for_a_while(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are swapped while one is compared with the log, and restored afterwards."""
    registered(installation)
    once: list[str] = []

    def late(*arguments: Any) -> Any:
        if not once:
            once.append("put back")
            exchange(installation.services, "references")
        return open_received(*arguments)

    monkeypatch.setattr(learn, "open_received", late)
    change = lambda services: exchange(services, "references")  # noqa: E731
    with changing(installation, "execute.leased", change):
        installation.drain()
    ends = {(one.state, one.failure) for one in contributions(installation)}
    # The other model has its own row again by then.
    assert ends == {("failed", OTHER_UPLOAD), ("learned", None)}
    assert versions(installation) == 1


@pytest.mark.full
def test_what_was_compared_is_what_is_learned_and_destroyed(installation: Installation) -> None:
    """Uploads are swapped during the first computation."""
    registered(installation)
    change = lambda services: exchange(services, "uploads")  # noqa: E731
    with changing(installation, "execute.computed", change):
        installation.drain()
    first, second = contributions(installation)
    assert (first.state, second.failure) == ("learned", NO_UPLOAD)
    with Session(installation.services.engine) as session:
        # The other's row names the learned file.
        assert session.get_one(Artifact, second.upload_id).wrapped_key is None
        (model,) = session.exec(select(Model).where(Model.state == "ready")).all()
        learned = session.exec(select(Record.record).where(Record.model_id == model.id)).all()
    assert (model.ref, len(learned)) == (MODEL, small.ROWS)


@pytest.mark.parametrize("model", [OTHER, MODEL], ids=["two models", "one model"])
@pytest.mark.parametrize("what", ["uploads", "uploads and entries"])
def test_contributions_are_not_exchanged(ready: Installation, what: str, model: str) -> None:
    assert ready.caller.register_model(small.rows(seed=1), ref=OTHER).status_code == 201
    ready.drain()
    before = [one.id for one in contributions(ready)]
    one, other = feeder(ready, "c1"), feeder(ready, "c2")
    send(one, MODEL, "c1", seed=2)
    send(other, model, "c2", seed=3, first=2000)
    exchange(ready.services, what)
    assert "contribution" in found(ready)
    ready.drain()
    nothing_learned(ready, *before, versions_before=2)
    send(one, MODEL, "c1", seed=2)
    send(other, model, "c2", seed=3, first=2000)
    ready.drain()
    assert [one.state for one in contributions(ready)][-2:] == ["learned", "learned"]
    assert versions(ready) == 4
    ready.check()


@pytest.mark.full
def test_statistics_are_not_exchanged(installation: Installation) -> None:
    remote = Remote(installation)
    remote.register()
    for client in ("c0", "c1"):
        sent = remote.contribute(client, remote.message(remote.owned(client)))
        assert sent.status_code == 202, sent.text
    exchange(installation.services, "uploads")
    installation.drain()
    nothing_learned(installation)
    remote.contribute_all()  # the model keeps waiting for its clients' statistics
    assert {one.state for one in contributions(installation)[2:]} == {"learned"}
    installation.check()


@pytest.mark.full
@pytest.mark.trains
def test_no_silo_answers_from_the_upload_of_another(installation: Installation) -> None:
    networks.register(installation)
    before = [one.id for one in contributions(installation)]
    for client, seed in (("c1", 1), ("c2", 2)):
        more = small_network.rows(seed=seed, count=8, first=1000 * seed)
        more["clients"] = np.full(8, client)
        path = f"/v1/models/{small_network.MODEL}/contributions"
        answer = feeder(installation, client).signed("POST", path, pack(more), content_type=NPZ)
        assert answer.status_code == 202, answer.text
    services = installation.services
    with services.reading() as session:
        model_id = session.exec(select(Model.id)).one()
        assert model_id is not None
        whole = family.client_rows(services, session, model_id, "c1", None)
        assert len(whole) > 0
    exchange(services, "uploads")
    with services.reading() as session, pytest.raises(OtherUploadError):
        family.client_rows(services, session, model_id, "c1", None)
    installation.drain()
    nothing_learned(installation, *before, versions_before=1)


def test_the_log_names_an_upload_by_a_key_of_the_model(installation: Installation) -> None:
    """A guessed row cannot be compared, nor is it visible that two models got the same."""
    for ref in (MODEL, OTHER):
        assert installation.caller.register_model(ref=ref).status_code == 201
    entries, made = logged(installation), contributions(installation)
    digests = {one.body_digest for one in made}
    assert len(digests) == 1
    assert len(entries) == len(set(entries.values())) == 2
    plain = {*digests, *(hashlib.sha256(one.encode()).hexdigest() for one in digests)}
    assert not plain & set(entries.values())
    with Session(installation.services.engine) as session:
        for one in made:
            model = session.get_one(Model, one.model_id)
            tag = upload_tag(installation.services.root_secret, model, one.id, one.body_digest)
            assert entries[one.log_index] == tag
