"""Who reads all that an installation stores learns nobody's name, erased or not."""

import subprocess

from sqlalchemy import inspect, text

from tests.e2e.harness import LETHE
from tests.redteam.live.conftest import Target
from tests.small import MODEL

ASKED = "asked-by-somebody-4711"


def check(target: Target) -> subprocess.CompletedProcess[str]:
    """Run the check on what only the request's Idempotency-Key names."""
    return subprocess.run(
        [*LETHE, "purge", "check"],
        env=target.processes.environment(),
        input=f"{ASKED}\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_dump_names_nobody_and_the_check_finds_what_is_planted(target: Target) -> None:
    processes = target.processes
    with processes.requester() as requester:
        receipt = requester.submit_erasure(MODEL, client="c1", idempotency_key=ASKED)
        assert requester.wait(receipt.id, timeout=120).state == "certified"
    with target.database() as engine, engine.connect() as connection:
        dump = b"".join(
            repr(row).encode()
            for table in inspect(connection).get_table_names()
            for row in connection.execute(text(f"SELECT * FROM {table}"))
        )
    assert b"'c1'" not in dump
    assert ASKED.encode() not in dump
    assert b"'r1'" not in dump
    found = check(target)
    assert found.returncode == 0, found.stdout
    with target.database() as engine, engine.begin() as connection:
        connection.execute(text("UPDATE jobs SET error = :it"), {"it": ASKED})
    found = check(target)
    assert found.returncode == 1, found.stdout
    assert "jobs.error" in found.stdout
    assert ASKED not in found.stdout
