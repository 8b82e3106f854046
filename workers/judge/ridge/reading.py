"""The retained rows, read once and block by block: everything that the checks need of them.

Each block is released when the next one is read. Only the leaf of a row is kept: commitment,
content and version, 72 bytes.
"""

from collections.abc import Callable, Collection
from contextlib import ExitStack

from workers.judge.base import Judgement
from workers.judge.checks import ODD_INPUT
from workers.judge.ridge.claim import BlockClaim, ExactClaim
from workers.judge.ridge.freivalds import Testing
from workers.judge.ridge.leaves import LeafSort
from workers.judge.ridge.row_digests import leaves_of
from workers.judge.ridge.statistics import Recomputed, Recomputing

Vouched = tuple[Judgement, Recomputed | None]


class Reading:
    """The results of reading a claim's rows; affected results raise for a malformed row.

    rows: their number. stored: those of `wanted`, ids of records, that are among them.
    """

    def __init__(self, claim: ExactClaim, wanted: Collection[str]) -> None:
        """Read all rows. Never raises, whatever a claim may contain."""
        self.rows, self.stored = 0, set[str]()
        self._wanted = frozenset(wanted)
        self._leaves = LeafSort()
        self._test: Recomputing | Testing | None = None
        self._vouched: Vouched | None = None
        self._errors: dict[str, Exception] = {}
        with ExitStack() as stack:
            if claim.masked is None and claim.messages is None:
                self._try("statistics", lambda: self._begin(claim, stack))
            try:
                for block in claim.rows:
                    self._take(block)
            except ODD_INPUT as error:
                self._errors = {"leaves": error, "statistics": error}
            self._try("statistics", self._end)

    def statistics(self) -> Vouched:
        """Return check 1 of rows, and the statistics that it verified."""
        if "statistics" in self._errors:
            raise self._errors["statistics"]
        assert self._vouched is not None
        return self._vouched

    def leaves(self) -> LeafSort:
        """Return the leaves of all rows, and keep none."""
        if "leaves" in self._errors:
            raise self._errors["leaves"]
        leaves, self._leaves = self._leaves, LeafSort()
        return leaves

    def _begin(self, claim: ExactClaim, stack: ExitStack) -> None:
        if claim.ridge.mode == "freivalds":
            self._test = stack.enter_context(Testing(claim.ridge))
        else:
            self._test = Recomputing(claim.ridge)

    def _take(self, block: BlockClaim) -> None:
        rows, test = block.rows, self._test
        self.rows += len(rows)
        self.stored |= self._wanted.intersection(block.records)
        if test is not None:
            self._try("statistics", lambda: test.take(rows))
        self._try("leaves", lambda: self._leaves.add(leaves_of(block)))

    def _end(self) -> None:
        if self._test is not None:
            self._vouched = self._test.judge()

    def _try(self, part: str, run: Callable[[], None]) -> None:
        """Call `run` unless this part has failed: a bad row must not affect other checks."""
        if part not in self._errors:
            try:
                run()
            except ODD_INPUT as error:
                self._errors[part] = error
