"""A row's content that moves to another id is noticed, whoever moved it and when."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text
from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.vault import OWNER, fsck_vault
from app.retained_pages import RetainedSet, leaves
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.retained_tree import folded_root
from lethe.certificates.statement import Predicate, parse_statement
from lethe.log.entries import Leaf, parse_leaf
from models import LogEntry, Model, ModelVersion, Record, Subject
from tests import small_network
from tests.installation import Installation
from tests.lethe.certificates.tree_oracle import oracle_root
from tests.small import MODEL, rows
from tests.workers.jobs.families import test_sums_family, uploaded
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.lineage.changed_rows import uncompared
from tests.workers.jobs.lineage.histories import contribute, outcome
from workers.arrays import Rows
from workers.families.ridge import (
    family as ridge_family,
)
from workers.families.ridge.rows import owners, stored_digests
from workers.families.ridge.stored import RowBlock, decode_block
from workers.lineage import chain
from workers.lineage.chain import STORED
from workers.lineage.logged import RENAMED
from workers.lineage.versions import OTHER_FILES

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

Patch = pytest.MonkeyPatch
ANY = bytes(32)


def blocks(session: Session, at: Installation) -> dict[int, RowBlock]:
    model = session.exec(select(Model)).one()
    assert model.id is not None
    stored = at.services.features.load_many(session, model.id)
    found = {subject: decode_block(payload) for subject, payload in stored}
    return {subject: block for subject, block in found.items() if isinstance(block, RowBlock)}


def rewrite(at: Installation, change: Callable[[dict[str, Any]], None]) -> None:
    """Store the rows again after applying `change` to {record: [codes, label]}."""
    with Session(at.services.engine) as session:
        known = blocks(session, at)
        contents = {
            record: [block.rows.codes[place].copy(), int(block.rows.labels[place])]
            for block in known.values()
            for place, record in enumerate(block.records)
        }
        change(contents)
        for subject, block in known.items():
            own = [contents[record] for record in block.records]
            codes = np.stack([codes for codes, _ in own])
            told = replace(block, rows=Rows(codes, np.array([label for _, label in own])))
            row = session.get_one(Subject, subject)
            at.services.features.rewrite(session, row, told.encode(), len(own))
        session.commit()


def swap(contents: dict[str, Any]) -> None:
    """Keep the content of r1 under the id of r2, which will be erased in its place."""
    contents["r1"], contents["r2"] = contents["r2"], contents["r1"]


def contents_swapped(at: Installation) -> None:
    rewrite(at, swap)


def one_unit(at: Installation) -> None:
    def change(contents: dict[str, Any]) -> None:
        contents["r9"][0][2] += 1

    rewrite(at, change)


def owner_renamed(at: Installation) -> None:
    with Session(at.services.engine) as session:
        one = session.exec(select(Subject).where(Subject.client_tag == "c3")).one()
        one.client = "c9"
        session.add(one)
        session.commit()


def another_entry_named(at: Installation) -> None:
    with Session(at.services.engine) as session:
        session.exec(select(ModelVersion)).one().log_index = 0
        session.commit()


def forge(at: Installation) -> RetainedSet:
    """Store the leaves as if the first version had been made from the present rows."""
    with Session(at.services.engine) as session:
        model = session.exec(select(Model)).one()
        assert model.id is not None
        known = {one.record: one for one in session.exec(select(Record))}
        owned = owners(session, blocks(session, at))
        for subject, block in blocks(session, at).items():
            for one in stored_digests(block, owned[subject]):
                known[one.record].content = one.digest
                session.add(known[one.record])
        session.flush()
        forged = RetainedSet.of(leaves(session, model.id))
        session.commit()
    return forged


def a_second_entry_of_the_same_head(at: Installation) -> None:
    contents_swapped(at)
    forged = forge(at)
    said = {**logged(at)[0].digests, "retained": forged.root.hex()}
    index = at.services.ledger.transact(
        lambda tx: record_model_event(tx, MODEL, "model.version", said)
    )
    with Session(at.services.engine) as session:
        version = session.exec(select(ModelVersion)).one()
        version.log_index, version.retained_root = index, forged.root
        session.commit()


def certified(at: Installation, *records: str) -> Predicate:
    request = at.caller.erase_records(*records).json()["id"]
    at.drain()
    shown = at.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["state"] == "certified", shown
    bundle = at.caller.http.get(shown["certificate"]).content
    return parse_statement(parse_bundle(bundle).dsse_envelope.payload).predicate


def logged(at: Installation) -> list[Leaf]:
    """The log's entries of the model's versions, in order."""
    with Session(at.services.engine) as session:
        query = select(LogEntry.leaf).where(LogEntry.event == "model.version")
        found = session.exec(query.order_by(col(LogEntry.index))).all()
    return [parse_leaf(bytes(leaf)) for leaf in found]


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (
            contents_swapped,
            "FAIL also after a refit: 3 retained-set, 6 rows-before, 7 rows-after",
        ),
        (
            one_unit,
            "FAIL also after a refit: 3 retained-set, 5 posterior, 6 rows-before, 7 rows-after",
        ),
        (owner_renamed, "FAIL also after a refit: 3 retained-set, 6 rows-before, 7 rows-after"),
    ],
)
def test_rows_that_changed_in_storage_are_certified_for_nobody(
    ready: Installation, tamper: Callable[[Installation], None], said: str
) -> None:
    tamper(ready)
    # A refit makes everything else agree with the stored rows.
    assert outcome(ready, "r1", "r6") == ("needs-decision", f"verification {said}")


@pytest.mark.parametrize("tamper", [another_entry_named, a_second_entry_of_the_same_head])
@pytest.mark.parametrize("compared", [True, False])
def test_a_version_that_points_at_another_entry_is_refused_and_refuted(
    ready: Installation,
    monkeypatch: Patch,
    tamper: Callable[[Installation], None],
    compared: bool,
) -> None:
    """Before anything is executed, and by the judge if the provider does not check."""
    if not compared:
        uncompared(monkeypatch)
    tamper(ready)
    why = RENAMED if compared else "verification FAIL also after a refit: 1 log"
    if not compared and tamper is a_second_entry_of_the_same_head:
        why = OTHER_FILES  # of a version that has no row
    assert outcome(ready, "r1", "r6") == ("needs-decision", why)


def test_digests_that_were_changed_with_the_rows_are_not_built_on(ready: Installation) -> None:
    """By neither an erasure nor a contribution: the log has the root of the original rows."""
    contents_swapped(ready)
    forge(ready)
    contribute(ready, 1)
    assert len(logged(ready)) == 1
    assert outcome(ready, "r1", "r6") == ("needs-decision", STORED)
    assert len(logged(ready)) == 1


def test_a_contribution_launders_nothing(ready: Installation, monkeypatch: Patch) -> None:
    """The provider builds on the rows as they are now, ignoring the logged root."""
    contents_swapped(ready)
    forged = forge(ready)
    honest = folded_root

    def folded(leaves: Any) -> Any:
        """The stored set is a list; the new records are not."""
        return (ANY, len(leaves)) if isinstance(leaves, list) else honest(leaves)

    with monkeypatch.context() as patch:
        patch.setattr(chain, "check_set", lambda *_: None)
        patch.setattr(chain, "folded_root", folded)
        with Session(ready.services.engine) as session:
            version = session.exec(select(ModelVersion)).one()
            kept, version.retained_root = bytes(version.retained_root), ANY
            session.commit()
        contribute(ready, 1)
    with Session(ready.services.engine) as session:
        first, _ = session.exec(select(ModelVersion).order_by(col(ModelVersion.number))).all()
        first.retained_root = kept
        session.commit()
    assert forged.root != kept
    assert len(logged(ready)) == 2
    assert outcome(ready, "r1")[1].endswith(": 6 rows-before")


def test_forged_digests_of_those_that_went(ready: Installation, monkeypatch: Patch) -> None:
    def forged(*given: Any) -> Any:
        first, *others = stored_digests(*given)
        return [first._replace(digest=bytes(32)), *others]

    monkeypatch.setattr(ridge_family, "stored_digests", forged)
    assert outcome(ready, "r1", "r6")[1].endswith(": 6 rows-before")


def test_a_version_with_the_root_of_another_set_is_refitted(
    ready: Installation, monkeypatch: Patch
) -> None:
    honest = RetainedSet.left

    def left(tree: Any) -> RetainedSet:
        return replace(honest(tree), root=bytes.fromhex("ab" * 32))

    with monkeypatch.context() as patch:
        patch.setattr(RetainedSet, "left", left)
        predicate = certified(ready, "r1", "r6")
    assert predicate.method.id == "ridge-exact-refit"
    assert "ab" * 32 in [leaf.digests["retained"] for leaf in logged(ready)]
    assert [check.name for check in predicate.checks[5:]] == ["rows-before", "rows-after"]


def test_the_certificate_and_the_log_name_the_same_rows(ready: Installation) -> None:
    contribute(ready, 1)
    contribute(ready, 2)
    first = certified(ready, "r1", "r100")
    contribute(ready, 3)
    second = certified(ready, "r300", "r2", "r200")
    said = [leaf.digests for leaf in logged(ready)]
    for number, digests in enumerate(said, 1):
        assert ("added" in digests) == (number not in (4, 6))
        assert "rows" not in digests
    for predicate, number in ((first, 4), (second, 6)):
        before, after = predicate.checks[5:]
        assert before.value == f"sha256 {said[number - 2]['retained']}"
        assert after.value == f"sha256 {said[number - 1]['retained']}"
        assert predicate.retained_set.after.root.hex() == said[number - 1]["retained"]
    with Session(ready.services.engine) as session:
        model = session.exec(select(Model)).one()
        assert model.id is not None
        owned, learned = owners(session, blocks(session, ready)), set[int]()
        known = {one.record: one for one in session.exec(select(Record))}
        for subject, block in blocks(session, ready).items():
            for one in stored_digests(block, owned[subject]):
                assert known[one.record].content == one.digest
                learned.add(one.learned)
        anew = oracle_root({one.commitment: one.content for one in known.values()})
    assert said[-1]["retained"] == anew.hex()
    assert learned == {1, 2, 3, 5}
    ready.check()


def two_subjects(arrays: dict[str, Any]) -> dict[str, Any]:
    """Give the records of each client to two subjects in turn."""
    known: dict[str, int] = {}
    named = []
    for client in arrays["clients"].tolist():
        known[client] = known.get(client, -1) + 1
        named.append(f"{client}-{known[client] % 2}")
    return {**arrays, "subjects": np.array(named)}


def ridge(at: Installation) -> str:
    at.ready(arrays=two_subjects(rows()))
    return MODEL


def sums(at: Installation) -> str:
    test_sums_family.register(at, two_subjects(test_sums_family.rows()))
    return uploaded.MODEL


def network(at: Installation) -> str:
    networks.register(at, two_subjects(small_network.rows()))
    return small_network.MODEL


@pytest.mark.parametrize(
    ("begin", "columns"),
    [
        (ridge, ("client_tag",)),
        (sums, ("client", "client_tag")),
        pytest.param(network, ("client_tag",), marks=pytest.mark.full),
    ],
)
def test_rows_that_were_given_to_another_owner_are_not_certified_as_gone(
    installation: Installation,
    begin: Callable[[Installation], str],
    columns: Sequence[str],
) -> None:
    """By an attacker who writes only the table of subjects, to hide them from the request."""
    model, scope = begin(installation), {"level": "client", "client": "c1"}
    with Session(installation.services.engine) as session:
        named = {one.subject: one.id for one in session.exec(select(Subject))}
        moved, to = named["c1-0"], named["c2-0"]
        values = ", ".join(f"{c} = (select {c} from subjects where id = :to)" for c in columns)
        changed = text(f"update subjects set {values} where id = :moved")
        session.connection().execute(changed, {"to": to, "moved": moved})
        session.commit()
    answer = installation.caller.erase(scope, fields={"model": model})
    installation.drain()
    state = installation.caller.http.get(f"/v1/requests/{answer.json()['id']}").json()["state"]
    assert state in ("executing", "verifying")  # it is retried, and an operator is told
    report = FsckReport()
    services = installation.services
    fsck_vault(services.engine, services.artifacts, services.root_secret, report)
    assert [one.detail for one in report.findings] == [OWNER]
