"""Which tests `make coverage` measures: those that may still run a new statement.

Tracing doubles a test's time, and after the first tests of a file most run nothing new. So a
file is measured until several of its tests in a row add no statement. All tests run all the
same; a statement that only an unmeasured test runs lowers the figure, and nothing raises it.
"""

import os
from typing import Any

import coverage
import pytest

ADDED_NOTHING = 2  # tests in a row, after which the rest of their file is not measured


class Measuring:
    """A plugin that stops and starts the process's measurement between tests."""

    def __init__(self, measurement: coverage.Coverage) -> None:
        self._measurement, self._measures = measurement, True
        self._known, self._in_vain = 0, {""}
        self._file, self._run = "", 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Measure a test unless the tests of its file before it added nothing."""
        file = item.nodeid.partition("::")[0]
        if file != self._file:
            self._file, self._run = file, 0
        self._measure(file not in self._in_vain)
        result = yield
        if self._measures:
            count = self._statements()
            self._run = 0 if count > self._known else self._run + 1
            self._known = count
            if self._run == ADDED_NOTHING:
                self._in_vain.add(file)
        return result

    def _measure(self, wanted: bool) -> None:
        if wanted and not self._measures:
            self._measurement.start()
        if self._measures and not wanted:
            self._measurement.stop()
            # Nor are the processes measured that the test starts.
            os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
        self._measures = wanted

    def _statements(self) -> int:
        # The public way writes all of them to a file first.
        collector: Any = self._measurement._collector
        return sum(map(len, list(collector.data.values())))
