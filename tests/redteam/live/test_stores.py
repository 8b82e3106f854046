"""What the service's own role changes in the stores of a running service, fsck names."""

import json

from sqlalchemy import text

from tests.redteam.live.conftest import Target
from tests.small import MODEL

CHANGES = (
    "UPDATE records SET record = 'another' WHERE id = (SELECT min(id) FROM records)",
    "UPDATE verifications SET result = 'FAIL'",
    "DELETE FROM tombstones",
    "UPDATE model_versions SET statistics_digest = 'x' WHERE number = 1",
)


def test_what_is_changed_beside_the_log_is_named(target: Target) -> None:
    with target.processes.requester() as requester:
        receipt = requester.submit_erasure(MODEL, records=["r1"])
        assert requester.wait(receipt.id, timeout=120).state == "certified"
    assert target.fsck() == 0
    with target.database() as engine, engine.begin() as connection:
        query = "SELECT id FROM artifacts WHERE kind = 'evidence' AND wrapped_key IS NOT NULL"
        evidence = connection.execute(text(query)).scalar_one()
        for change in CHANGES:
            connection.execute(text(change))
    (target.processes.settings.data_dir / "artifacts" / evidence).unlink()
    printed = target.processes.cli("log", "fsck", "--json", check=False)
    assert printed.returncode == 1
    findings = json.loads(printed.stdout)["findings"]
    named = {"certificate", "file", "journal", "sealed", "version"}
    assert {finding["check"] for finding in findings} == named
    assert receipt.id not in printed.stdout
