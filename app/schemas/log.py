"""The log's history on the wire."""

from app.schemas.base import Wire


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
