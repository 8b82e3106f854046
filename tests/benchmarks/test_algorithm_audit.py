"""The audit of methods on digits, as far as it runs in no time."""

import pytest

from benchmarks import algorithm_audit
from workers.audit_pairs.draw import Plan
from workers.audit_pairs.pair import Pair


def test_each_method_is_audited_on_the_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def run_pair(*given: object) -> Pair:
        method, rows, number = given[2], given[3], given[5]
        assert isinstance(rows, dict)
        assert sum(len(own.records) for own in rows.values()) == 1797
        asked.append((method.id, int(str(number))))  # type: ignore[attr-defined]
        return Pair(9.0 + asked[-1][1] % 2, 0.0 + asked[-1][1] % 2, asked[-1][1] % 2, False)

    monkeypatch.setattr(algorithm_audit, "run_pair", run_pair)
    for name in algorithm_audit.METHODS:
        pairs, finding = algorithm_audit.audited(name, Plan(0, 16, 60, 1, mislabelled=True))
        assert asked == [(name, number) for number in range(16)]
        said = algorithm_audit.spelled(finding)
        assert (said["result"], said["after"], said["trials"]) == ("NOTHING-FOUND", 0, 8)
        assert said["before"] == said["resolution"] == pytest.approx(0.5347, abs=1e-4)
        assert len(pairs) == 16
        margins = algorithm_audit.apart(pairs)
        assert (margins.after, margins.noise) == (0, 0)
        assert margins.before > 10
        asked.clear()
