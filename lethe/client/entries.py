"""Log entries for an auditor: a range with proof, or the matches of a filter.

Only entries that are proven to be in the tree of one signed checkpoint are returned. For a
range it is also proven that no entry is left out. For a filter's matches that cannot be proven,
since no tree is sorted by the filtered fields: to be certain, read the range and filter it
here.
"""

from dataclasses import dataclass, field
from typing import Any

from lethe.canonical import parse_base64, parse_decimal
from lethe.client.answers import Document
from lethe.client.calls import Call
from lethe.client.errors import AnswerError
from lethe.log.checkpoint import Checkpoint
from lethe.log.entries import EntryError, Leaf, parse_leaf
from lethe.log.log_keys import LogKeys, log_keys
from lethe.log.note import NoteVerifier
from lethe.log.proofs import ProofError, check_inclusion
from lethe.log.ranges import check_range, read_range
from lethe.log.tree import leaf_hash

PAGE = 1000  # entries, the maximum page size of the service


@dataclass(frozen=True, slots=True)
class LoggedEntry:
    """An entry of the log. said: None if this version does not know its kind."""

    index: int
    leaf: bytes
    said: Leaf | None


@dataclass(frozen=True, slots=True)
class LogEntries:
    """Entries among [start, end) of the log whose signed head is `checkpoint`.

    complete: it is proven that no (matching) entry is left out.
    """

    entries: tuple[LoggedEntry, ...]
    start: int
    end: int
    complete: bool
    checkpoint: Checkpoint
    note: str


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Required fields of an entry; None matches every value."""

    ref: str | None = None
    event: str | None = None
    kind: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """The fields that are not None."""
        parts = {"ref": self.ref, "event": self.event, "kind": self.kind}
        return {name: value for name, value in parts.items() if value is not None}

    def matches(self, said: Leaf | None) -> bool:
        """Return whether an entry matches."""
        return all(getattr(said, name, None) == value for name, value in self.given.items())


@dataclass(slots=True)
class EntryReading:
    """Reads entries `first` to `last` page by page, and checks each page on arrival.

    last: None for the log's end. prove: read the whole range and filter it here.
    """

    keys: NoteVerifier | LogKeys
    first: int
    last: int | None
    filter: EntryFilter
    prove: bool
    _head: Checkpoint | None = None
    _note: str = ""
    _start: int = 0  # of the requested range
    _next: int = 0
    _done: bool = False
    _found: list[LoggedEntry] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether whole ranges are read."""
        return self.prove or not self.filter.given

    def call(self) -> Call | None:
        """Return the call for the next page, None once everything is read."""
        if self._done:
            return None
        at = self.first if self._head is None else self._next
        query = {"limit": str(PAGE if self.last is None else min(PAGE, self.last + 1 - at))}
        if at:
            query["after"] = str(at - 1)
        if self._head is not None:
            query["size"] = str(self._head.size)
        if not self.complete:
            query |= self.filter.given | {"limit": str(PAGE)}
        return Call("GET", "/v1/log/entries", query=tuple(query.items()))

    def take(self, page: Document) -> None:
        """Check a page and keep its matching entries.

        Raises:
            AnswerError: It is not a valid page.
            NoteError, CheckpointError: The log's key did not sign its checkpoint.
            ProofError: An entry is not proven, or one is left out.
        """
        if self._head is None:
            self._begin(page)
        try:
            entries = [_entry(item) for item in page["items"]]
            hashes = [tuple(map(parse_base64, item["hashes"])) for item in page["items"]]
            following = page["next"]
            whole = page["completeness"]["range"]
        except (LookupError, TypeError, ValueError):
            raise AnswerError(
                "the service's entries lack a field, or have one of another type: is "
                "the service of this version?"
            ) from None
        if self.complete:
            self._take_range(entries, whole)
        else:
            self._take_matches(entries, hashes, following)

    def found(self) -> LogEntries:
        """Return what was read."""
        head = self._head
        assert head is not None, "the first page is read first"
        return LogEntries(
            tuple(one for one in self._found if self.filter.matches(one.said)),
            self._start,
            self._end(head),
            self.complete,
            head,
            self._note,
        )

    def _begin(self, page: Document) -> None:
        note = page.get("checkpoint")
        if not isinstance(note, str):
            raise AnswerError("the service's entries come without a checkpoint: is it too old?")
        self._head, _ = log_keys(self.keys).open(note)
        self._note = note
        self._start = self._next = min(self.first, self._head.size)

    def _end(self, head: Checkpoint) -> int:
        end = head.size if self.last is None else min(self.last + 1, head.size)
        return max(end, self._start)

    def _take_range(self, entries: list[LoggedEntry], whole: Any) -> None:
        assert self._head is not None
        proof = read_range(whole)
        leaves = [leaf_hash(one.leaf) for one in entries]
        check_range(proof, leaves, self._head.size, self._head.root)
        if proof.start != self._next or [one.index for one in entries] != [
            *range(proof.start, proof.end)
        ]:
            raise ProofError("the service answered with another range than was asked for")
        end = self._end(self._head)
        if proof.end == proof.start and proof.end < end:
            raise ProofError("the service answered with no entry, and the log has more")
        self._found += [one for one in entries if one.index < end]
        self._next = proof.end
        self._done = self._next >= end

    def _take_matches(
        self, entries: list[LoggedEntry], hashes: list[tuple[bytes, ...]], following: object
    ) -> None:
        assert self._head is not None
        size, root = self._head.size, self._head.root
        for one, proof in zip(entries, hashes, strict=True):
            if one.index < self._next or not self.filter.matches(one.said):
                raise ProofError("the service answered with an entry that was not asked for")
            check_inclusion(one.index, size, leaf_hash(one.leaf), proof, root)
            self._next = one.index + 1
            if one.index < self._end(self._head):
                self._found.append(one)
        end = self._end(self._head)
        if following is not None and not entries:
            self._next = self._after(following)
        self._done = following is None or self._next >= end

    def _after(self, cursor: object) -> int:
        """Return the entry after the last one that the service examined without a match."""
        try:
            if not isinstance(cursor, str):
                raise TypeError
            found = parse_decimal(cursor, 2**53) + 1
        except (TypeError, ValueError):
            found = 0
        if found <= self._next:
            raise AnswerError("the service's list does not end: its cursor leads nowhere")
        return found


def _entry(item: Any) -> LoggedEntry:
    index, leaf = item["log_index"], parse_base64(item["leaf"])
    if type(index) is not int:
        raise TypeError
    try:
        said = parse_leaf(leaf)
    except EntryError:
        said = None
    return LoggedEntry(index, leaf, said)
