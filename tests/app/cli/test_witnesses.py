"""`lethe log witnesses`: the state of each witness, and --end."""

import json
from functools import partial
from pathlib import Path

import pytest

from app.cli.witnesses import witnesses
from app.ledger.sequencer import Ledger
from app.settings import Settings
from app.witnesses.gather import begin
from tests.app.ledger.samples import append, entry
from tests.app.witnesses.three import gathering, three_witnesses
from tests.lethe.cli.certificates import run_as_main

run = partial(run_as_main, command=witnesses)


@pytest.fixture(autouse=True)
def _environment(settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_DATA_DIR", str(settings.data_dir))
    monkeypatch.setenv("LETHE_DATABASE_URL", settings.database_url)
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)


def test_each_witness_has_its_row(ledger: Ledger, settings: Settings, tmp_path: Path) -> None:
    told = run()
    assert told.stdout == "0 entries, 0 of them cosigned by a quorum\n"
    assert told.stderr == "nothing to list\n"
    with (
        three_witnesses(tmp_path / "w", ledger) as three,
        gathering(ledger, three.write(settings, "both")) as gatherer,
    ):
        gatherer.round()
        append(ledger, entry(1), entry(2))
        gatherer.round()
    told = run()
    assert told.exit_code == 0, told.output
    said = json.loads(run("--json").output)
    assert (said["entries"], said["cosigned_by_quorum"]) == (2, 2)
    assert [one["witness"].split(".")[0] for one in said["witnesses"]] == [
        "down", "honest", "liar",
    ]  # fmt: skip
    first, _, *rows = told.output.splitlines()
    assert first == "2 entries, 2 of them cosigned by a quorum"
    assert [(row.split(".")[0], row.split()[1]) for row in rows] == [
        ("down", "down"),
        ("honest", "2"),
        ("liar", "lying"),
    ]


def test_the_end_needs_no_policy_and_something_to_end(
    ledger: Ledger, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing to end" in run("--end").output
    with three_witnesses(tmp_path / "w", ledger) as three:
        named = three.write(settings, "both")
        begin(ledger, three.parsed("both"))
        append(ledger, entry(1))
        monkeypatch.setenv("LETHE_WITNESS_POLICY", named.witness_policy)
        refused = run("--end")
        assert refused.exit_code == 2
        assert "unset LETHE_WITNESS_POLICY" in refused.output
        monkeypatch.delenv("LETHE_WITNESS_POLICY")
        assert run("--end").output == "ended\n"
