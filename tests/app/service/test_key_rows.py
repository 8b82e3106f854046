"""Whoever writes only the database makes nobody's key and nobody's token."""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session

from app.problems import RoundMemberError, TokenNameError
from app.purge import retention
from app.reconcile.fsck.run import fsck
from app.rounds.operator import client_keys
from app.service.access.tokens import mint, revoke_named
from lethe.signing.keys import generate_key, public_pem
from tests.installation import Installation, make_token
from tests.small import Caller
from tests.workers.jobs.leases.test_deaths import set_ahead
from workers.errors import RefusedError
from workers.families.masked.case import public_key_of

GUESSED = "lethe_operator_chosen-by-the-attacker"
DIGEST = hashlib.sha256(GUESSED.encode()).hexdigest()


def sql(installation: Installation, statement: str, **values: Any) -> None:
    """What an attacker with the service's role does."""
    with installation.services.engine.begin() as connection:
        assert connection.execute(text(statement), values).rowcount == 1


def copied(installation: Installation, table: str, where: str) -> dict[str, Any]:
    with installation.services.engine.connect() as connection:
        query = text(f"SELECT * FROM {table} WHERE {where}")
        return dict(connection.execute(query).mappings().fetchall()[0])


def put_back(installation: Installation, table: str, key: str, row: dict[str, Any]) -> None:
    columns = ", ".join(f"{name} = :{name}" for name in row)
    sql(installation, f"UPDATE {table} SET {columns} WHERE {key} = :{key}", **row)


def insert(installation: Installation, table: str, row: dict[str, Any]) -> None:
    names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    sql(installation, f"INSERT INTO {table} ({names}) VALUES ({values})", **row)


def found(installation: Installation) -> list[tuple[str, str]]:
    report = fsck(installation.services.ledger)
    return [(one.check, one.detail.split()[0]) for one in report.findings]


def refused(caller: Caller) -> None:
    answer = caller.erase_records("r1")
    assert (answer.status_code, answer.json()["type"].split(":")[-1]) == (401, "key-unknown")


def bound(ready: Installation, **binding: str) -> Caller:
    caller = Caller(ready.caller.http, ready.caller.token, keyid="bound")
    assert caller.register_key(**binding).status_code == 201
    return caller


def test_a_planted_key_is_unknown_and_found(
    ready: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    mallory = Caller(ready.caller.http, "", keyid="mallory-chose-this")
    row = copied(ready, "requester_keys", "keyid = 'alice'")
    insert(
        ready,
        "requester_keys",
        row | {"keyid": mallory.keyid, "public_key": public_pem(mallory.key)},
    )
    refused(mallory)
    assert "requester_keys" in caplog.text
    assert mallory.keyid not in caplog.text
    listed = ready.caller.operator("GET", "/v1/keys").json()["items"]
    assert [item["keyid"] for item in listed] == ["alice"]
    assert found(ready) == [("key", "requester_keys")]


@pytest.mark.parametrize("column", ["public_key", "role", "client", "subject", "created_at"])
def test_a_changed_key_is_unknown(ready: Installation, column: str) -> None:
    caller = bound(ready, client="c1", subject="jane")
    changed = {
        "public_key": public_pem(generate_key("ed25519")),
        "role": "client",
        "client": None,
        "subject": None,
        "created_at": "2020-01-01 00:00:00",
    }[column]
    sql(ready, f"UPDATE requester_keys SET {column} = :it WHERE keyid = 'bound'", it=changed)
    refused(caller)
    assert found(ready) == [("key", "requester_keys")]


def test_a_binding_of_another_key_or_garbage_is_unknown(ready: Installation) -> None:
    caller = bound(ready, client="c1")
    other = Caller(ready.caller.http, ready.caller.token, keyid="other")
    assert other.register_key(client="c2").status_code == 201
    sql(
        ready,
        "UPDATE requester_keys SET client = (SELECT client FROM requester_keys "
        "WHERE keyid = 'other') WHERE keyid = 'bound'",
    )
    refused(caller)
    sql(ready, "UPDATE requester_keys SET client = :it WHERE keyid = 'bound'", it=b"garbage")
    refused(caller)
    assert found(ready) == [("key", "requester_keys")]
    # What the operator registers again is what counts.
    assert caller.register_key(client="c1").status_code == 201
    assert caller.erase_records("r1").status_code != 401
    assert found(ready) == []


def test_a_revocation_cannot_be_taken_back(ready: Installation) -> None:
    before = copied(ready, "requester_keys", "keyid = 'alice'")
    assert ready.caller.operator("DELETE", "/v1/keys/alice").status_code == 200
    sql(ready, "UPDATE requester_keys SET revoked_at = NULL WHERE keyid = 'alice'")
    refused(ready.caller)
    put_back(ready, "requester_keys", "keyid", before)  # authentic, and older
    refused(ready.caller)
    assert found(ready) == [("key", "requester_keys")]
    # Nor by removing the row and having the same one registered.
    assert ready.caller.register_key().status_code == 409
    sql(ready, "DELETE FROM requester_keys WHERE keyid = 'alice'")
    refused(ready.caller)
    assert ready.caller.register_key().status_code == 409
    insert(ready, "requester_keys", before)
    refused(ready.caller)
    assert ready.caller.operator("DELETE", "/v1/keys/alice").status_code == 200
    assert found(ready) == []


@pytest.mark.parametrize("away", ["DELETE FROM", "UPDATE"])
def test_a_key_that_was_away_when_it_was_revoked_does_not_come_back(
    ready: Installation, away: str
) -> None:
    before = copied(ready, "requester_keys", "keyid = 'alice'")
    changed = " SET created_at = '2020-01-01 00:00:00'" if away == "UPDATE" else ""
    sql(ready, f"{away} requester_keys{changed} WHERE keyid = 'alice'")
    answer = ready.caller.operator("DELETE", "/v1/keys/alice")
    assert answer.status_code == 404
    assert "lethe log fsck" in answer.json()["detail"]
    if changed:
        put_back(ready, "requester_keys", "keyid", before)
    else:
        insert(ready, "requester_keys", before)
    refused(ready.caller)
    assert ready.caller.operator("DELETE", "/v1/keys/alice").status_code == 200


def test_a_revoked_key_that_forgot_its_binding_stays_authentic(ready: Installation) -> None:
    bound(ready, client="c1")
    assert ready.caller.operator("DELETE", "/v1/keys/bound").status_code == 200
    assert retention.run(ready.services).removed == {"key": 1}
    assert found(ready) == []
    listed = ready.caller.operator("GET", "/v1/keys").json()["items"]
    assert [item["client"] for item in listed] == [None, "(destroyed)"]


def _planted(ready: Installation) -> str:
    row = copied(ready, "bearer_tokens", "scope = 'operator'")
    insert(ready, "bearer_tokens", row | {"digest": DIGEST, "name": "planted"})
    return GUESSED


def _widened(ready: Installation) -> str:
    auditor = make_token(ready.services, "auditor")
    sql(ready, "UPDATE bearer_tokens SET scope = 'operator' WHERE scope = 'auditor'")
    return auditor


def _renamed(ready: Installation) -> str:
    auditor = make_token(ready.services, "auditor")
    sql(ready, "UPDATE bearer_tokens SET name = 'bob' WHERE scope = 'auditor'")
    return auditor


@pytest.mark.parametrize("attack", [_planted, _widened, _renamed])
def test_a_foreign_token_is_unknown_and_found(
    ready: Installation, attack: Callable[[Installation], str]
) -> None:
    token = attack(ready)
    answer = Caller(ready.caller.http, token).operator("GET", "/v1/requests")
    assert answer.status_code == 401
    never = Caller(ready.caller.http, "lethe_operator_never").operator("GET", "/v1/requests")
    assert answer.json()["detail"] == never.json()["detail"]
    assert found(ready) == [("token", "bearer_tokens")]


def test_a_round_is_joined_and_summed_with_no_planted_key(ready: Installation) -> None:
    bound(ready, client="c1", role="client")
    with ready.services.reading() as session:
        assert client_keys(session, ["bound"]) == {"bound": "c1"}
    planted = public_pem(generate_key("ed25519"))
    sql(ready, "UPDATE requester_keys SET public_key = :it WHERE keyid = 'bound'", it=planted)
    with ready.services.reading() as session:
        with pytest.raises(RoundMemberError, match="not a registered key"):
            client_keys(session, ["bound"])
        with pytest.raises(RefusedError, match="not as it was registered"):
            public_key_of(session, "bound")


def test_the_list_of_revocations_survives_a_cut_line_and_is_missed(ready: Installation) -> None:
    path = ready.settings.keys_dir / "revoked.list"
    bound(ready)
    path.write_bytes(b"cut by a cra")
    assert ready.caller.operator("DELETE", "/v1/keys/bound").status_code == 200
    sql(ready, "UPDATE requester_keys SET revoked_at = NULL WHERE keyid = 'bound'")
    assert found(ready) == [("key", "requester_keys")]
    assert ready.caller.operator("DELETE", "/v1/keys/bound").status_code == 404  # changed
    kept = path.read_bytes()
    path.unlink()
    assert ready.caller.erase_records("r1").status_code == 503
    path.write_bytes(b"")
    assert ready.caller.operator("DELETE", "/v1/keys/alice").status_code == 200
    path.write_bytes(kept)  # an older one
    assert sorted(found(ready)) == [("key", "requester_keys")] * 2


def test_a_revocation_means_the_living_token_and_no_row_that_was_put_back(
    ready: Installation,
) -> None:
    def reads(token: str) -> int:
        return Caller(ready.caller.http, token).operator("GET", "/v1/requests").status_code

    def minted() -> str:
        with Session(ready.services.engine) as session:
            token = mint(session, "operator", "ann")
            session.commit()
            return token

    def revoke() -> None:
        with Session(ready.services.engine) as session:
            revoke_named(session, "ann")
            session.commit()

    stale = minted()
    digest = hashlib.sha256(stale.encode()).hexdigest()
    before = copied(ready, "bearer_tokens", f"digest = '{digest}'")
    revoke()
    # With the row put back, the name is free all the same, and means the new token.
    put_back(ready, "bearer_tokens", "digest", before)
    living = minted()
    assert (reads(stale), reads(living)) == (401, 200)
    revoke()
    assert (reads(stale), reads(living)) == (401, 401)
    assert found(ready) == []
    with pytest.raises(TokenNameError, match="no active token"):
        revoke()


def test_a_revoked_token_stays_revoked(ready: Installation) -> None:
    token = make_token(ready.services)
    digest = hashlib.sha256(token.encode()).hexdigest()
    before = copied(ready, "bearer_tokens", f"digest = '{digest}'")
    with Session(ready.services.engine) as session:
        revoke_named(session, before["name"])
        session.commit()
    put_back(ready, "bearer_tokens", "digest", before)
    assert Caller(ready.caller.http, token).operator("GET", "/v1/requests").status_code == 401
    assert found(ready) == [("token", "bearer_tokens")]
    with Session(ready.services.engine) as session:
        revoke_named(session, before["name"])
        session.commit()
    assert found(ready) == []


@pytest.mark.parametrize("how", ["removed", "renamed", "an older one instead"])
def test_a_token_that_was_away_when_it_was_revoked_stays_revoked(
    ready: Installation, how: str
) -> None:
    def minted(name: str = "ann") -> str:
        with Session(ready.services.engine) as session:
            token = mint(session, "operator", name)
            session.commit()
            return token

    def revoke() -> None:
        with Session(ready.services.engine) as session:
            revoke_named(session, "ann")
            session.commit()

    def reads(token: str) -> int:
        return Caller(ready.caller.http, token).operator("GET", "/v1/requests").status_code

    def row_of(token: str) -> dict[str, Any]:
        digest = hashlib.sha256(token.encode()).hexdigest()
        return copied(ready, "bearer_tokens", f"digest = '{digest}'")

    older = minted()
    earlier = row_of(older)
    revoke()
    token, other = minted(), minted("bob")
    row = row_of(token)
    if how == "renamed":
        put_back(ready, "bearer_tokens", "digest", {**row, "name": "eve"})
    else:
        sql(ready, "DELETE FROM bearer_tokens WHERE digest = :it", it=row["digest"])
    if how == "an older one instead":
        put_back(ready, "bearer_tokens", "digest", earlier)
        revoke()
    else:
        with pytest.raises(TokenNameError, match="counts as revoked"):
            revoke()
    assert reads(token) == 401
    if how == "renamed":
        put_back(ready, "bearer_tokens", "digest", row)
    else:
        insert(ready, "bearer_tokens", row)
    living = minted()  # the name is free, and a token made from now on counts
    assert [reads(one) for one in (older, token, living, other)] == [401, 401, 200, 200]
    assert found(ready) == [("token", "bearer_tokens")]
    revoke()
    assert [reads(one) for one in (token, living)] == [401, 401]
    assert found(ready) == []


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_name_ends_by_the_databases_clock(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One machine makes the token, another whose clock is an hour behind revokes it."""

    def reads(token: str) -> int:
        return Caller(ready.caller.http, token).operator("GET", "/v1/requests").status_code

    def minted(ahead: int) -> str:
        set_ahead(monkeypatch, timedelta(hours=ahead))
        with Session(ready.services.engine) as session:
            token = mint(session, "operator", "ann")
            session.commit()
            return token

    for made, revoked in ((1, 0), (0, 1)):
        token = minted(made)
        digest = hashlib.sha256(token.encode()).hexdigest()
        row = copied(ready, "bearer_tokens", f"digest = '{digest}'")
        sql(ready, "DELETE FROM bearer_tokens WHERE digest = :it", it=digest)
        set_ahead(monkeypatch, timedelta(hours=revoked))
        with Session(ready.services.engine) as session, pytest.raises(TokenNameError):
            revoke_named(session, "ann")
        insert(ready, "bearer_tokens", row)
        living = minted(0)
        assert (reads(token), reads(living)) == (401, 200)
        with Session(ready.services.engine) as session:
            revoke_named(session, "ann")
            session.commit()
