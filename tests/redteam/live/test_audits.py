"""Who writes the database of a running service hides a report: it is missing, none is older."""

from sqlalchemy import text

from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import parse_statement
from lethe.client import Client
from tests import small_network
from tests.e2e.harness import until
from tests.redteam.live.conftest import Target
from tests.small import pack

ASKED = {"model": small_network.MODEL, "method": "retrain", "pairs": 16, "rows": 12, "seed": 5}


def _audited(target: Target, operator: Client) -> str:
    audit_id = str(operator.start_audit(ASKED)["id"])
    worker = target.processes.worker
    until(lambda: operator.audit(audit_id)["state"] == "reported", "the audit", worker)
    return audit_id


def _told(requester: Client, record: str) -> dict[str, str]:
    receipt = requester.submit_erasure(small_network.MODEL, records=[record], method="retrain")
    assert requester.wait(receipt.id, timeout=120).state == "certified"
    statement = parse_statement(parse_bundle(requester.certificate(receipt.id)).payload)
    told = statement.predicate.method.parameters
    return {name: value for name, value in told.items() if name[:5] == "audit"}


def test_a_hidden_report_is_missing_and_no_older_one_is_cited(target: Target) -> None:
    processes = target.processes
    with processes.operator() as operator, processes.requester() as requester:
        operator.register_model(small_network.manifest(), pack(small_network.rows()))
        until(
            lambda: operator.model(small_network.MODEL)["state"] == "ready",
            "the training",
            processes.worker,
        )
        older, newest = _audited(target, operator), _audited(target, operator)
        digest = operator.audit(newest)["report_digest"]
        with target.database() as engine, engine.begin() as connection:
            connection.execute(
                text("UPDATE audits SET state = 'stopped', created_at = '2020-01-01'")
            )
        told = _told(requester, "r0")
        assert told["audit"] == digest
        assert told["audit.missing"] == "audits that the log has and the database lacks: 2"
        with target.database() as engine, engine.begin() as connection:
            for table, name in (("audit_pairs", "audit_id"), ("audits", "id")):
                connection.execute(text(f"DELETE FROM {table} WHERE {name} = '{newest}'"))
            connection.execute(
                text(f"UPDATE artifacts SET wrapped_key = NULL WHERE digest = '{digest}'")
            )
        told = _told(requester, "r1")
        assert "audit" not in told
        assert "the report is not stored" in told["audit.missing"]
        assert (told["audit.started"], told["audit.reported"]) == ("2", "2")
        states = sorted(one["state"] for one in operator.audits())
        assert states == ["missing", "missing", "unlogged"], older
    assert target.fsck() == 1
