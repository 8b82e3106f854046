"""The log's history on the wire."""

from typing import Annotated

from pydantic import Field

from app.schemas.base import Page, Wire


class EntryView(Wire):
    """One entry with its inclusion proof in the tree of `tree_size`."""

    log_index: int
    kind: str
    event: str | None
    ref: str | None
    day: str
    leaf: str
    tree_size: int
    hashes: list[str]


class TreeView(Wire):
    """The tree of the log's first `size` entries."""

    size: int
    root: str


class RangeConsistencyView(Wire):
    """Consistency proofs: from the tree before a range to that at its end, and to the head."""

    range: list[str]
    head: list[str]


class RangeView(Wire):
    """The trees before and at the end of a range of entries, and what ties them to the head."""

    start: TreeView
    end: TreeView
    consistency: RangeConsistencyView


class CompletenessView(Wire):
    """Whether a proof shows that no entry is left out, in words too."""

    provable: bool
    detail: str
    range: Annotated[RangeView | None, Field(description="null: a filter was given")]


class EntriesPage(Page[EntryView]):
    """Entries in the order of the log, proven in the tree of `tree_size`.

    checkpoint: the signed note of that size, null where none was signed.
    """

    tree_size: int
    checkpoint: str | None
    completeness: CompletenessView


class InclusionView(Wire):
    """An inclusion proof; hashes are base64, lowest level first."""

    log_index: int
    tree_size: int
    leaf_hash: str
    root: str
    hashes: list[str]


class ConsistencyView(Wire):
    """A consistency proof between two tree sizes."""

    old: int
    new: int
    old_root: str
    new_root: str
    hashes: list[str]
