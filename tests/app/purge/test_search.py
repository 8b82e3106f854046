"""An erased person is found nowhere in clear, and every planted trace is found."""

import sqlite3
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from click.testing import CliRunner
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlmodel import Session, select

from app.cli.purge import purge
from app.purge import retention
from app.purge.needles import forms
from app.purge.search import search
from app.reconcile.fsck.run import fsck
from app.uploads.rows import parse_rows
from app.uploads.spool import Spool
from app.vault.artifacts import ArtifactStore
from app.vault.master import RootSecret
from models import Contribution, ErasureRequest, Model, RequesterKey, Subject
from models.database.session import reading
from tests.installation import Installation
from tests.small import MODEL, Caller, pack, rows
from workers.jobs import sweep

CLIENT, SUBJECT = "klinik-zwölf-7731", "jane.doe-4711@example.org"
RECORDS = ("record-of-jane-0001", "record-of-jane-0002")
SENT, ASKED = "idempotent-jane-sent-1", "idempotent-jane-asked-2"
NAMES = (CLIENT, SUBJECT, *RECORDS, SENT, ASKED)


def hers() -> dict[str, Any]:
    """Return the person's two rows, as they are sent."""
    arrays = rows(seed=5, count=2)
    arrays["clients"] = np.array([CLIENT] * 2)
    arrays["subjects"] = np.array([SUBJECT] * 2)
    arrays["records"] = np.array(RECORDS)
    return arrays


@pytest.fixture
def erased(ready: Installation) -> Installation:
    """An installation that learned a person's records and erased them, with a certificate."""
    person = Caller(ready.caller.http, ready.caller.token, keyid="hers")
    assert person.register_key(role="client", client=CLIENT, subject=SUBJECT).is_success
    path = f"/v1/models/{MODEL}/contributions"
    headers = {"Idempotency-Key": SENT}
    sent = person.signed(
        "POST", path, pack(hers()), content_type="application/x-npz", headers=headers
    )
    assert sent.status_code == 202, sent.text
    ready.drain()
    with Session(ready.services.engine) as session:
        assert session.exec(select(Subject).where(Subject.subject_tag == SUBJECT)).one().subject
    asked = ready.caller.erase(
        {"level": "subject", "subject": SUBJECT}, headers={"Idempotency-Key": ASKED}
    )
    assert asked.status_code == 202, asked.text
    ready.drain()
    shown = ready.caller.http.get(f"/v1/requests/{asked.json()['id']}").json()
    assert shown["state"] == "certified", shown
    assert shown["scope"]["subject"] == SUBJECT, "its holder still sees what was asked"
    assert ready.caller.operator("DELETE", "/v1/keys/hers").is_success
    assert retention.run(ready.services).removed == {"key": 1}
    sweep.run(ready.services)
    return ready


def stored_bytes(installation: Installation) -> bytes:
    """Everything on disk: the data directory, and the database's files or rows."""
    settings = installation.settings
    files = [path for path in settings.data_dir.rglob("*") if path.is_file()]
    url = make_url(settings.resolved_database_url)
    if url.get_backend_name() == "sqlite":
        files += sorted(Path(str(url.database)).parent.glob(f"{Path(str(url.database)).name}*"))
        return b"".join(path.read_bytes() for path in files)
    with installation.services.engine.connect() as connection:
        connection.execute(text("CHECKPOINT"))
        query = (
            "SELECT pg_read_binary_file(pg_relation_filepath(oid)) FROM pg_class"
            " WHERE relkind IN ('r', 'i', 't') AND relfilenode <> 0 AND oid > 16383"
        )
        pages = [bytes(row[0]) for row in connection.execute(text(query))]
    return b"".join([*(path.read_bytes() for path in files), *pages])


def test_nobody_erased_is_found_in_any_byte(erased: Installation) -> None:
    held = stored_bytes(erased)
    for number, name in enumerate(NAMES):
        assert not any(form in held for form in forms(name)), f"name {number} is there"
    found = search(erased.settings, NAMES)
    assert found.ok, found.as_json()
    assert any(place.startswith("erasure_requests.scope") for place in found.kept)
    assert any(place.startswith("subjects.subject_tag") for place in found.kept)
    with Session(erased.services.engine) as session:
        row = session.exec(select(Subject).where(Subject.subject_tag == SUBJECT)).one()
        assert (row.client, row.subject) == (None, None)
        asked = session.exec(select(ErasureRequest)).one()
        assert asked.idempotency_key not in (None, ASKED)
        key = session.get_one(RequesterKey, "hers")
        assert SUBJECT not in (key.client, key.subject)
        assert None not in (key.client, key.subject), "a bound key never becomes a free one"
    erased.check()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_no_byte_confirms_a_guess_of_what_was_sent(
    erased: Installation, tmp_path: Path
) -> None:
    """Whoever guesses rows can compute the stored file, and its digest, without any key."""
    body = Spool(tmp_path)
    body.write(pack(hers()))
    with erased.services.reading() as session:
        model = session.exec(select(Model)).one()
        sent = session.exec(select(Contribution.body_digest)).all()
    with ArtifactStore(tmp_path / "guess", RootSecret(bytes(32))).staged("upload") as file:
        most = erased.settings.max_upload_bytes
        parse_rows(body, file, model.config, classes=model.classes, max_bytes=most)
    assert file.digest in sent, "the guess is right"
    held = stored_bytes(erased)
    assert not any(form in held for form in (*forms(file.digest), bytes.fromhex(file.digest)))


def test_retention_ends(erased: Installation) -> None:
    assert not retention.run(erased.services).removed, "it has only just ended"
    days = erased.settings.model_copy(update={"request_retention_days": 0})
    late = replace(erased.services, settings=days)
    assert retention.run(late).removed == {"evidence": 1, "scope": 1}
    with Session(erased.services.engine) as session:
        request = session.exec(select(ErasureRequest)).one()
    path = f"/v1/requests/{request.id}"
    shown = erased.caller.http.get(path).json()
    assert (shown["state"], shown["scope"]) == ("certified", None)
    assert erased.caller.http.get(f"{path}/evidence").status_code == 410
    assert erased.caller.http.get(f"{path}/certificate").status_code == 200
    found = search(erased.settings, NAMES)
    assert found.ok, found.as_json()
    assert all("one-way tag" in place for place in found.kept), found.kept
    assert not retention.run(late).removed
    erased.check()
    assert fsck(erased.services.ledger).ended == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_reader_in_the_way_of_a_retention_run_keeps_no_old_page(ready: Installation) -> None:
    """The run has no file to destroy, which is what a sweep looked for."""
    engine = ready.services.engine
    ready.caller.register_key(keyid="bound", subject=SUBJECT)
    with engine.begin() as connection:
        stored = "SELECT subject FROM requester_keys WHERE keyid = 'bound'"
        sealed: bytes = connection.execute(text(stored)).scalar_one()
        long_ago = "UPDATE artifacts SET shredded_at = '2020-01-01' WHERE shredded_at > ''"
        assert connection.execute(text(long_ago)).rowcount
    assert ready.caller.operator("DELETE", "/v1/keys/bound").is_success
    with reading(engine).connect() as reader:
        reader.exec_driver_sql("SELECT 1 FROM requester_keys").close()
        assert retention.run(ready.services).removed == {"key": 1}
        sweep.run(ready.services)
        assert sealed in stored_bytes(ready)
    sweep.run(ready.services)
    assert sealed not in stored_bytes(ready)


def in_a_column(made: Installation) -> None:
    with made.services.engine.begin() as connection:
        connection.execute(text("UPDATE jobs SET error = :it"), {"it": f"at {RECORDS[0]}"})


def in_a_sealed_column(made: Installation) -> None:
    with Session(made.services.engine) as session:
        row = session.exec(select(Subject).where(Subject.subject_tag == SUBJECT)).one()
        row.subject = SUBJECT
        session.commit()


def in_an_artifact(made: Installation) -> None:
    with Session(made.services.engine) as session:
        made.services.artifacts.put(session, "upload", f"x{RECORDS[1]}x".encode())
        session.commit()


def in_a_log(made: Installation) -> None:
    (made.settings.data_dir / "worker.log").write_text(f'{{"of": "{SUBJECT}"}}')


def in_the_broker(made: Installation) -> None:
    folder = made.settings.data_dir / "broker"
    folder.mkdir(exist_ok=True)
    (folder / "1.msg").write_bytes(sorted(forms(SENT))[-1])


def in_a_deleted_row(made: Installation) -> None:
    url = make_url(made.settings.resolved_database_url)
    insert = "INSERT INTO used_nonces VALUES ('k', :it, '2020-01-01 00:00:00')"
    if url.get_backend_name() == "sqlite":
        connection = sqlite3.connect(str(url.database))
        connection.execute("PRAGMA secure_delete=OFF")
        connection.execute(insert.replace(":it", "?"), (CLIENT,))
        connection.execute("DELETE FROM used_nonces WHERE keyid = 'k'")
        connection.commit()
        connection.close()
        return
    with made.services.engine.begin() as held:
        held.execute(text(insert), {"it": CLIENT})
        held.execute(text("DELETE FROM used_nonces WHERE keyid = 'k'"))


@pytest.mark.parametrize(
    "plant",
    [
        in_a_column,
        in_a_sealed_column,
        in_an_artifact,
        in_a_log,
        in_the_broker,
        in_a_deleted_row,
    ],
)
def test_each_planted_leftover_is_found(
    erased: Installation,
    plant: Callable[[Installation], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(erased)
    monkeypatch.setenv("LETHE_DATABASE_URL", erased.settings.database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(erased.settings.data_dir))
    answer = CliRunner().invoke(purge, ["check"], input="\n".join(NAMES))
    assert answer.exit_code == 1, answer.output
    assert "leftovers:" in answer.output
    assert not any(name in answer.output for name in NAMES)


def test_who_was_not_erased_is_found(ready: Installation) -> None:
    ready.caller.register_key(keyid="bound", subject=SUBJECT)
    found = search(ready.settings, [SUBJECT])
    assert not found.ok
    assert set(found.leftovers) == {"requester_keys.subject"}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_name_is_found_however_the_file_spells_it(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, form: Literal["NFC", "NFD"]
) -> None:
    name = unicodedata.normalize("NFC", "rené-4711")
    ready.caller.register_key(keyid="bound", subject=name)
    monkeypatch.setenv("LETHE_DATABASE_URL", ready.settings.database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(ready.settings.data_dir))
    sent = f"\ufeff{unicodedata.normalize(form, name)} \r\n"
    answer = CliRunner().invoke(purge, ["check"], input=sent.encode())
    assert answer.exit_code == 1, answer.output
    assert "requester_keys.subject" in answer.output


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_both_forms_of_a_text_are_looked_for(form: Literal["NFC", "NFD"]) -> None:
    held = unicodedata.normalize(form, "a note on rené").encode()
    assert any(one in held for one in forms("rené"))


@pytest.mark.parametrize("coding", ["utf-16", "latin-1"])
def test_a_file_in_another_coding_is_an_error(ready: Installation, coding: str) -> None:
    answer = CliRunner().invoke(purge, ["check"], input="rené-4711\n".encode(coding))
    assert answer.exit_code == 2, answer.output
    assert "not UTF-8" in answer.output


@pytest.mark.parametrize("sent", ["", "\n", "abc\n"])
def test_what_cannot_be_looked_for_is_an_error(ready: Installation, sent: str) -> None:
    answer = CliRunner().invoke(purge, ["check"], input=sent)
    assert answer.exit_code not in (0, 1) or answer.exception is not None
