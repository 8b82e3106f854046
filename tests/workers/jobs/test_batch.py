"""Coalesced requests: one update, one version, and a certificate of full strength for each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.evidence import build_evidence, check_evidence, parse_evidence
from lethe.certificates.statement import Predicate, parse_statement
from lethe.log.entries import parse_leaf
from models import (
    Artifact,
    Certificate,
    ErasureRequest,
    Job,
    LogEntry,
    Model,
    ModelVersion,
    Record,
    Tombstone,
    Verification,
)
from models.database.types import utcnow
from tests.installation import Installation, install, shown
from tests.small import MODEL, ROWS, Caller, pack, rows
from tests.workers.jobs.lineage.oracle import current_head, refit_head
from workers.arrays import Rows
from workers.cases.claims import purge_claims
from workers.errors import RefusedError
from workers.families.ridge import case as ridge_case
from workers.jobs import batch, certify, execute, sweep, verify
from workers.jobs.leased import leased
from workers.judge.base import Report
from workers.judge.merkle import merkle_root
from workers.judge.ridge.claim import ExactClaim
from workers.judge.ridge.verdict import RidgeVerifier
from workers.leases.lease import JobContext, Lease, LeaseLostError
from workers.lineage.chain import BatchMember, Chain, Link
from workers.methods.ridge.base import Outcome, RidgeConfig, RidgeState
from workers.methods.ridge.ridge_exact import METHOD

WAIT_S = 3600


def batching(settings: Settings, minimum: int = 3) -> Settings:
    return settings.model_copy(
        update={"batch_min_requests": minimum, "batch_max_wait_seconds": WAIT_S}
    )


@pytest.fixture
def three(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """A fitted installation in which three requests wait for one another."""
    with install(batching(settings)) as made:
        made.ready()
        yield made


def submit(installation: Installation, *records: str, **fields: Any) -> str:
    accepted = installation.caller.erase_records(*records, fields=fields)
    assert accepted.status_code == 202, accepted.text
    return str(accepted.json()["id"])


def states(installation: Installation, *requests: str) -> list[str]:
    return [shown(installation, request)["state"] for request in requests]


def events(installation: Installation, request: str) -> list[str]:
    history = shown(installation, request)["history"]
    return [item["event"].removeprefix("request.") for item in history]


@dataclass(frozen=True)
class Issued:
    """A certificate and its evidence."""

    subject: str
    predicate: Predicate
    evidence: bytes


def issued(installation: Installation, request: str) -> Issued:
    path = shown(installation, request)["certificate"]
    bundle = installation.caller.http.get(path).content
    statement = parse_statement(parse_bundle(bundle).dsse_envelope.payload)
    evidence = installation.caller.http.get(f"/v1/requests/{request}/evidence").content
    check_evidence(evidence, statement.predicate)
    return Issued(statement.subject[0].name, statement.predicate, evidence)


def versions(installation: Installation) -> list[ModelVersion]:
    with Session(installation.services.engine) as session:
        query = select(ModelVersion).order_by(col(ModelVersion.number))
        return list(session.exec(query))


def jobs(installation: Installation) -> list[Job]:
    with Session(installation.services.engine) as session:
        return list(session.exec(select(Job).order_by(col(Job.seq))))


def context(installation: Installation, lease: Lease) -> JobContext:
    with Session(installation.services.engine) as session:
        model = session.get_one(Model, lease.model_id)
        session.expunge(model)
        return JobContext(installation.services, lease, model)


def change(installation: Installation, statement: Any) -> None:
    with Session(installation.services.engine) as session:
        session.connection().execute(statement)
        session.commit()


def check_chain(installation: Installation, requests: list[str], last: ModelVersion) -> None:
    """The certificates lead from one version's set to the next, link by link, as logged."""
    before = versions(installation)[0]
    found = [issued(installation, request) for request in requests]
    root, count = bytes(before.retained_root), before.retained_count
    chain = []
    for one in found:
        link = one.predicate.retained_set
        assert (link.before.root, link.before.count) == (root, count)
        assert link.after.count == count - one.predicate.scope.records
        root, count = link.after.root, link.after.count
        chain.append(root)
        assert one.predicate.method.parameters["batch"] == str(len(requests))
        assert one.predicate.result == "PASS"
    assert (root, count) == (bytes(last.retained_root), last.retained_count)
    with Session(installation.services.engine) as session:
        update = session.exec(select(ModelVersion).where(ModelVersion.number == 2)).one()
        logged = parse_leaf(session.get_one(LogEntry, update.log_index).leaf).digests
    names = [f"retained-{number}" for number in range(1, len(requests))] + ["retained"]
    assert [logged[name] for name in names] == [value.hex() for value in chain]
    assert set(logged) == {*names, "head", "statistics"}


def test_requests_wait_for_one_another_and_are_one_update(three: Installation) -> None:
    requests = [submit(three, "r1")]
    three.drain()
    requests.append(submit(three, "r2", "r6"))  # r1, r6 are of one client, in one block
    three.drain()
    assert states(three, *requests) == ["received", "received"]
    requests.append(submit(three, "r3"))
    three.drain()
    assert states(three, *requests) == ["certified"] * 3
    assert [version.number for version in versions(three)] == [1, 2]
    for request in requests:
        assert events(three, request) == [
            *("received", "executing", "executed", "verified", "certified")
        ]
    assert {issued(three, request).subject for request in requests} == {f"{MODEL}/versions/2"}
    check_chain(three, requests, versions(three)[-1])
    with Session(three.services.engine) as session:
        drafts = session.exec(select(Artifact).where(Artifact.kind == "draft")).all()
        assert [artifact.wrapped_key for artifact in drafts] == [None] * 3
        assert len(session.exec(select(Tombstone)).all()) == 4
    three.check()


def test_the_evidence_of_one_request_says_nothing_of_the_others(three: Installation) -> None:
    with Session(three.services.engine) as session:
        salts = {record.record: bytes(record.salt) for record in session.exec(select(Record))}
    requests = {name: submit(three, name) for name in ("r1", "r2", "r3")}
    three.drain()
    for name, request in requests.items():
        evidence = issued(three, request).evidence
        for other in requests:
            assert (f'"{other}"'.encode() in evidence) == (other == name)
            encoded = parse_salts(evidence)
            assert (salts[other] in encoded) == (other == name)


def parse_salts(evidence: bytes) -> set[bytes]:
    return {record.salt for record in parse_evidence(evidence).removal.records}


def test_one_request_is_executed_once_it_has_waited_long_enough(three: Installation) -> None:
    request = submit(three, "r1")
    three.drain()
    change(three, update(Job).values(created_at=utcnow() - timedelta(seconds=WAIT_S - 60)))
    assert sweep.run(three.services) == 0
    change(three, update(Job).values(created_at=utcnow() - timedelta(seconds=WAIT_S)))
    assert sweep.run(three.services) == 1
    three.drain()
    assert states(three, request) == ["certified"]
    assert issued(three, request).predicate.method.parameters["batch"] == "1"


def test_nothing_waits_when_its_deadline_is_near(three: Installation) -> None:
    first, second = submit(three, "r1"), submit(three, "r2")
    change(three, update(Job).values(created_at=utcnow() - timedelta(minutes=1)))
    near = utcnow() + timedelta(days=7, minutes=1)
    due = update(ErasureRequest).where(col(ErasureRequest.id) == second)
    change(three, due.values(due_at=near))
    assert sweep.run(three.services) == 0
    change(three, due.values(due_at=near - timedelta(minutes=2)))
    assert sweep.run(three.services) == 1
    three.drain()
    assert states(three, first, second) == ["certified"] * 2
    assert len(versions(three)) == 2


def test_one_at_a_time_each_goes_alone_and_can_be_withdrawn(
    settings: Settings, ledger: Ledger
) -> None:
    with install(settings.model_copy(update={"coalesce": False})) as ready:
        ready.ready()
        first, second = submit(ready, "r1"), submit(ready, "r2")
        execute.run(ready.services, jobs(ready)[1].id)
        assert states(ready, first, second) == ["verifying", "received"]
        assert ready.caller.signed("DELETE", f"/v1/requests/{second}").status_code == 200
        ready.drain()
        assert states(ready, first, second) == ["certified", "withdrawn"]


def test_what_waits_when_a_worker_is_free_goes_together(ready: Installation) -> None:
    requests = [submit(ready, record) for record in ("r1", "r2", "r3")]
    head = jobs(ready)[1].id
    execute.run(ready.services, head)
    late = submit(ready, "r4")
    verify.run(ready.services, head)
    assert [job.stage for job in jobs(ready)[1:]] == [*["certify"] * 3, "execute"]
    certify.run(ready.services, head)
    assert states(ready, *requests, late) == [*["certified"] * 3, "received"]
    check_chain(ready, requests, versions(ready)[-1])
    ready.drain()
    assert issued(ready, late).predicate.method.parameters["batch"] == "1"
    ready.check()


def test_a_worker_that_lost_one_of_its_jobs_records_none(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [submit(ready, record) for record in ("r1", "r2")]
    head, other = (job.id for job in jobs(ready)[1:])
    execute.run(ready.services, head)

    def taken(*arguments: Any) -> bytes:
        change(ready, update(Job).where(col(Job.id) == other).values(lease_token=99))
        return build_evidence(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(verify, "build_evidence", taken)
        verify.run(ready.services, head)
    assert [job.stage for job in jobs(ready)[1:]] == ["verify"] * 2
    assert all("verified" not in events(ready, one) for one in requests)
    ready.recover()
    ready.drain()
    assert states(ready, *requests) == ["certified"] * 2


@pytest.mark.parametrize(("stage", "kind"), [("verify", "draft"), ("certify", "evidence")])
def test_a_file_that_one_lost_keeps_no_other(
    ready: Installation, stage: str, kind: str
) -> None:
    requests = [submit(ready, record) for record in ("r1", "r2", "r3")]
    head = jobs(ready)[1].id
    execute.run(ready.services, head)
    if stage == "certify":
        verify.run(ready.services, head)
    with Session(ready.services.engine) as session:
        query = select(Artifact).where(Artifact.kind == kind)
        second = session.exec(query.order_by(col(Artifact.created_at))).all()[1]
        path = ready.settings.data_dir / "artifacts" / second.id
    data = path.read_bytes()
    path.unlink()
    ready.drain()
    assert states(ready, *requests)[0] == "certified"
    assert states(ready, *requests)[1:] == ["verifying"] * 2
    path.write_bytes(data)
    ready.recover()
    ready.drain()
    assert states(ready, *requests) == ["certified"] * 3


def test_a_second_try_goes_alone(ready: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [submit(ready, record) for record in ("r1", "r2")]
    head = jobs(ready)[1].id
    execute.run(ready.services, head)

    def evidence(removal: Any, *given: Any) -> bytes:
        if [one["record"] for one in removal["records"]] != ["r1"]:
            raise RuntimeError
        return build_evidence(removal, *given)

    with monkeypatch.context() as patch:
        patch.setattr(verify, "build_evidence", evidence)
        verify.run(ready.services, head)
        assert states(ready, *requests) == ["verifying"] * 2
        ready.recover()
        ready.drain()
        assert states(ready, requests[0]) == ["certified"]
    ready.recover()
    ready.drain()
    assert states(ready, *requests) == ["certified"] * 2


def test_what_must_not_be_signed_holds_up_no_certificate_before_it(ready: Installation) -> None:
    requests = [submit(ready, record) for record in ("r1", "r2", "r3")]
    head = jobs(ready)[1].id
    execute.run(ready.services, head)
    verify.run(ready.services, head)
    second = col(Verification.request_id) == requests[1]
    change(ready, update(Verification).where(second).values(version_id=1))
    ready.drain()
    assert states(ready, *requests) == ["certified", "needs-decision", "verifying"]
    with Session(ready.services.engine) as session:
        assert session.exec(select(Model)).one().state == "quarantined"


def test_a_request_that_waits_for_others_can_be_withdrawn(three: Installation) -> None:
    first, second = submit(three, "r1"), submit(three, "r2")
    assert three.caller.signed("DELETE", f"/v1/requests/{first}").status_code == 200
    submit(three, "r3")
    three.drain()
    assert states(three, first, second) == ["withdrawn", "received"]
    submit(three, "r4")
    three.drain()
    assert states(three, second) == ["certified"]


def test_another_method_or_kind_behind_them_ends_the_waiting(three: Installation) -> None:
    first = submit(three, "r1")
    other = submit(three, "r2", method="ridge-woodbury")
    three.drain()
    assert states(three, first, other) == ["certified", "received"]
    client = Caller(three.caller.http, three.caller.token, keyid="client")
    client.register_key(role="client")
    more = pack(rows(seed=5, count=2, first=300))
    path = f"/v1/models/{MODEL}/contributions"
    assert client.signed("POST", path, more, content_type="application/x-npz").is_success
    change(three, update(Job).values(created_at=utcnow() - timedelta(minutes=1)))
    three.dispatcher.sweep(three.services)
    assert states(three, other) == ["certified"]
    assert len(versions(three)) == 4
    three.check()


def test_requests_of_another_method_are_another_update(three: Installation) -> None:
    exact = [submit(three, f"r{number}") for number in range(2)]
    tracked = [submit(three, f"r{n}", method="ridge-woodbury") for n in range(2, 5)]
    three.drain()
    assert states(three, *exact, *tracked) == ["certified"] * 5
    assert [version.retained_count for version in versions(three)] == [ROWS, ROWS - 2, ROWS - 5]
    methods = {issued(three, request).predicate.method.id for request in tracked}
    assert methods == {"ridge-woodbury"}


def test_the_most_in_one_update_is_bounded(
    three: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "MOST_RECORDS", 4)
    requests = [submit(three, f"r{n}", f"r{n + 10}") for n in range(3)]
    three.drain()
    assert states(three, *requests) == ["certified", "certified", "received"]
    requests += [submit(three, f"r{n}") for n in (20, 21)]
    three.drain()
    assert states(three, *requests) == ["certified"] * 5
    assert [v.retained_count for v in versions(three)] == [ROWS, ROWS - 4, ROWS - 8]


def test_what_an_earlier_request_of_the_update_erases_is_refused(three: Installation) -> None:
    client = Caller(three.caller.http, three.caller.token, keyid="client")
    client.register_key(role="client", client="c1")
    arrays = {**rows(seed=4, count=1, first=500), "clients": np.array(["c1"])}
    path = f"/v1/models/{MODEL}/contributions"
    client.signed("POST", path, pack(arrays), content_type="application/x-npz")
    whole = three.caller.erase({"level": "client", "client": "c1"}).json()["id"]
    execute.run(three.services, jobs(three)[1].id)  # learned, but the erasure has not begun
    named, last = submit(three, "r500"), submit(three, "r2")
    three.drain()
    assert states(three, whole, named, last) == ["certified", "refused", "certified"]
    assert issued(three, whole).predicate.scope.records == ROWS // 5 + 1
    assert [issued(three, r).predicate.method.parameters["batch"] for r in (whole, last)] == [
        *("2", "2")
    ]
    three.check()


def test_a_client_behind_one_of_its_records_erases_the_rest(three: Installation) -> None:
    named = submit(three, "r1")
    whole = three.caller.erase({"level": "client", "client": "c1"}).json()["id"]
    last = submit(three, "r2")
    three.drain()
    assert states(three, named, whole, last) == ["certified"] * 3
    assert issued(three, whole).predicate.scope.records == ROWS // 5 - 1
    check_chain(three, [named, whole, last], versions(three)[-1])


def refusing(patch: pytest.MonkeyPatch, refuse: int, error: type[Exception]) -> list[int]:
    """Make the method refuse any batch with the codes of one row; return batch sizes."""
    honest, sizes = METHOD.forget, []
    bad: list[bytes] = []

    def forget(_: object, config: RidgeConfig, state: RidgeState, part: Rows) -> Outcome:
        sizes.append(len(part.codes))
        if not bad:
            bad.append(part.codes[refuse].tobytes())
        if bad[0] in [row.tobytes() for row in part.codes]:
            raise error("this removal is infeasible")
        return honest(config, state, part)

    patch.setattr(type(METHOD), "forget", forget)
    return sizes


def test_one_bad_request_does_not_refuse_the_others(
    three: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [submit(three, record) for record in ("r1", "r2", "r3")]
    sizes = refusing(monkeypatch, 1, RefusedError)
    three.drain()
    assert states(three, *requests) == ["certified", "refused", "certified"]
    assert sizes == [3, 1, 2, 1, 1]
    three.check()
    monkeypatch.undo()
    again = [submit(three, record) for record in ("r2", "r4", "r5")]
    three.drain()
    assert states(three, *again) == ["certified"] * 3


def test_an_error_of_one_request_fails_only_that_one(
    three: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [submit(three, record) for record in ("r1", "r2", "r3")]
    refusing(monkeypatch, 1, RuntimeError)
    for _ in range(3 * three.settings.max_tries):
        three.recover()
    assert states(three, *requests) == ["certified", "failed", "certified"]
    three.check()


def test_others_cannot_be_withdrawn_once_the_update_has_begun(three: Installation) -> None:
    requests = [submit(three, record) for record in ("r1", "r2", "r3")]
    with leased(three.services, jobs(three)[1].id, "execute") as lease:
        assert lease is not None
        assert len(batch.collect(context(three, lease))) == 3
        for request in requests:
            answer = three.caller.signed("DELETE", f"/v1/requests/{request}")
            assert answer.json()["type"] == "urn:lethe:problem:not-withdrawable"
    three.recover()
    assert states(three, *requests) == ["certified"] * 3
    assert events(three, requests[1]).count("executing") == 1


def erase(installation: Installation, lease: Lease, members: list[BatchMember]) -> None:
    """Execute under a lease what was collected, perhaps under another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "collect", lambda _: members)
        execute.erase(context(installation, lease))


def test_a_worker_that_lost_its_lease_commits_nothing_for_the_others(
    three: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [submit(three, record) for record in ("r1", "r2", "r3")]
    job = jobs(three)[1]
    with leased(three.services, job.id, "execute") as slow:
        assert slow is not None
        members = batch.collect(context(three, slow))
        change(three, update(Job).values(lease_until=utcnow().replace(year=2020)))
        with leased(three.services, job.id, "execute") as quick:
            assert quick is not None
            with pytest.raises(LeaseLostError):
                erase(three, slow, members)
            with pytest.raises(LeaseLostError):
                batch.collect(context(three, slow))
            # With the lease and the others' outdated tokens: refused just the same.
            fresh = batch.collect(context(three, quick))
            stale = [fresh[0], *(replace(m, token=m.token - 1) for m in fresh[1:])]
            with pytest.raises(LeaseLostError):
                erase(three, quick, stale)
            assert len(versions(three)) == 1
            erase(three, quick, fresh)
    three.recover()
    assert states(three, *requests) == ["certified"] * 3
    assert len(versions(three)) == 2
    three.check()


def head_off(patch: pytest.MonkeyPatch) -> None:
    honest = METHOD.forget

    def forget(_: object, config: RidgeConfig, state: RidgeState, part: Rows) -> Outcome:
        outcome = honest(config, state, part)
        head = outcome.state.head.copy()
        head[2, 1] = np.nextafter(head[2, 1], np.float32(np.inf))
        return replace(outcome, state=replace(outcome.state, head=head))

    patch.setattr(type(METHOD), "forget", forget)


def test_a_refit_of_the_first_serves_the_others_too(
    three: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    head_off(monkeypatch)
    requests = [submit(three, record) for record in ("r1", "r2", "r3")]
    three.drain()
    assert states(three, *requests) == ["certified"] * 3
    assert events(three, requests[0]) == [
        *("received", "executing", "executed", "verified", "escalated"),
        *("executed", "verified", "certified"),
    ]
    for other in requests[1:]:
        assert events(three, other) == [
            *("received", "executing", "executed", "escalated", "executed"),
            *("verified", "certified"),
        ]
    found = [issued(three, request) for request in requests]
    assert {one.subject for one in found} == {f"{MODEL}/versions/3"}
    assert {one.predicate.method.id for one in found} == {"ridge-exact-refit"}
    assert {len(one.predicate.purged.artifacts) for one in found} == {4}
    check_chain(three, requests, versions(three)[-1])
    three.check()


def test_a_refit_of_a_later_one_leaves_the_earlier_certificate(
    three: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []

    def readable(*arguments: Any) -> Any:
        judged.append(arguments)
        found = purge_claims(*arguments)
        if len(judged) == 1:  # the second request, the first time
            probe, *others = found[1].probes
            found[1] = replace(found[1], probes=[replace(probe, readable=True), *others])
        return found

    monkeypatch.setattr(ridge_case, "purge_claims", readable)
    requests = [submit(three, record) for record in ("r1", "r2", "r3")]
    three.drain()
    assert states(three, *requests) == ["certified"] * 3
    found = [issued(three, request) for request in requests]
    assert [one.subject[-1] for one in found] == ["2", "3", "3"]
    assert [one.predicate.method.id for one in found] == [
        *("ridge-exact", "ridge-exact-refit", "ridge-exact-refit")
    ]
    # The refuting verdict is in the log: the job was not judged again until it passed.
    assert events(three, requests[1]).count("verified") == 2
    check_chain(three, requests, versions(three)[-1])
    three.check()


def hides_the_third(first: Link, second: Link, third: Link) -> list[Link]:
    """The second link is sound in itself, but the third's records are hidden from its chain."""
    return [first, replace(second, later=[]), third]


def is_of_somebody_else(first: Link, second: Link, third: Link) -> list[Link]:
    """The second link claims the third's removal as its own."""
    return [first, replace(second, removal=third.removal), third]


def leaves_out_a_step(first: Link, second: Link, third: Link) -> list[Link]:
    """The third link claims to precede the second: both start where the first ended."""
    return [first, second, replace(third, earlier=third.earlier[:1], later=third.earlier[1:])]


@pytest.mark.parametrize(
    ("spoil", "ends", "reason"),
    [
        (hides_the_third, ["certified", "needs-decision", "verifying"], "other records"),
        (is_of_somebody_else, ["certified", "needs-decision", "verifying"], "twice in one"),
        (leaves_out_a_step, ["certified", "certified", "needs-decision"], "a step of the"),
    ],
    ids=["hidden", "another's", "left out"],
)
def test_a_chain_that_does_not_lead_to_the_version_is_not_certified(
    three: Installation,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[..., list[Link]],
    ends: list[str],
    reason: str,
) -> None:
    honest, judge, said = Chain.of, RidgeVerifier.verify_each, list[str]()

    def of(*arguments: Any, **named: Any) -> Chain:
        found = honest(*arguments, **named)
        return replace(found, links=spoil(*found.links))

    def verify_each(self: RidgeVerifier, claim: ExactClaim) -> list[Report]:
        reports = judge(self, claim)
        said.extend(report.checks[2].value for report in reports)
        return reports

    monkeypatch.setattr(Chain, "of", of)
    monkeypatch.setattr(RidgeVerifier, "verify_each", verify_each)
    requests = [submit(three, record) for record in ("r1", "r2", "r3")]
    three.drain()
    assert states(three, *requests) == ends
    assert any(reason in value for value in said[:3]), said
    with Session(three.services.engine) as session:
        certified = len(session.exec(select(Certificate)).all())
        assert certified == ends.count("certified")
        assert session.exec(select(Model)).one().state == "quarantined"


def test_all_of_a_model_can_go_in_one_update(three: Installation) -> None:
    for number in range(4):
        three.caller.erase({"level": "client", "client": f"c{number}"})
    three.caller.erase({"level": "client", "client": "c4"})
    three.drain()
    change(three, update(Job).values(created_at=utcnow() - timedelta(seconds=WAIT_S)))
    three.dispatcher.sweep(three.services)
    last = versions(three)[-1]
    assert (last.retained_count, bytes(last.retained_root)) == (0, merkle_root([]))
    with Session(three.services.engine) as session:
        assert {r.state for r in session.exec(select(ErasureRequest))} == {"certified"}
    three.check()


def test_the_head_of_an_update_is_that_of_a_refit(three: Installation) -> None:
    for record in ("r1", "r2", "r3"):
        submit(three, record)
    three.drain()
    kept = [number for number in range(ROWS) if number not in (1, 2, 3)]
    assert current_head(three) == refit_head(rows(), kept)


def test_who_erases_a_single_record_alone_is_warned(ready: Installation) -> None:
    once = {"idempotency-key": "once"}
    alone = ready.caller.erase_records("r1", headers=once)
    assert ["single record" in text for text in alone.json()["warnings"]] == [True]
    ready.drain()
    again = ready.caller.erase_records("r1", headers=once)
    assert again.json()["warnings"] == alone.json()["warnings"]
    assert ready.caller.erase_records("r2", "r3").json()["warnings"] == []
    assert ready.caller.erase({"level": "client", "client": "c1"}).json()["warnings"] == []


def test_who_waits_for_others_is_not_warned(three: Installation) -> None:
    assert three.caller.erase_records("r1").json()["warnings"] == []
