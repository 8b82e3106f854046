"""The rows that a model was fitted to, by record id, and the tree of their set.

The tree is that of a retained set (lethe/certificates/retained_tree.py). A commitment needs a
salt; here it is a digest of the record id, not a secret. So two parties with the same rows
compute the same root, and anybody who guesses a record id can use a proof to test whether it
was in the set. The content of a leaf is the digest of the model's data about the row.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.canonical import encode
from lethe.certificates.evidence import record_commitment
from lethe.certificates.retained_tree import Leaf, RetainedTree
from lethe.estimators.errors import EstimatorInputError

_SALT, _CONTENT = b"lethe/estimators/salt/v1\0", b"lethe/estimators/row/v1\0"


def salt_of(record: str) -> bytes:
    """Return the salt of a record's commitment: a digest of its id, not a secret."""
    return sha256(_SALT + record.encode()).digest()


def record_ids(ids: ArrayLike | None, rows: int) -> list[str]:
    """Return ids as text: whole numbers in decimal, and for None the numbers from 0 on.

    Raises EstimatorInputError: not one id for each row, an id is given twice, or an id is
    neither text nor a whole number.
    """
    if ids is None:
        return [str(i) for i in range(rows)]
    array = np.asarray(ids)
    plain = array.tolist() if array.ndim == 1 else None
    if plain is None or len(plain) != rows:
        raise EstimatorInputError(f"ids: give one for each of the {rows} rows")
    return distinct_ids(plain)


def distinct_ids(ids: Sequence[Any]) -> list[str]:
    """Return ids as text. Raises EstimatorInputError as `record_ids`."""
    kinds = {type(one) for one in ids}
    if not (kinds <= {str} or kinds <= {int}):
        raise EstimatorInputError("ids: give either texts or whole numbers")
    found = [str(one) for one in ids]
    if len(set(found)) != len(found):
        raise EstimatorInputError("ids: one is given twice; each row has an id of its own")
    try:
        "\n".join(found).encode()
    except UnicodeEncodeError:
        raise EstimatorInputError("ids: one is text that UTF-8 cannot carry") from None
    return found


class RowStore:
    """values (slots, width) and targets (slots, columns) of rows, each in a slot of its own.

    A removed row's slot is overwritten with zeros and reused. The slot of a row depends on the
    history: serialisers must sort by id.
    """

    def __init__(self, width: int, columns: int, dtype: Any) -> None:
        """Begin with no rows."""
        self.slots: dict[str, int] = {}
        self.values: NDArray[Any] = np.zeros((0, width), dtype)
        self.targets: NDArray[np.int64] = np.zeros((0, columns), np.int64)
        self._free: list[int] = []
        self._tree: RetainedTree | None = None
        self.class_digests: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def tree(self) -> RetainedTree:
        """The tree of the set of rows, computed when first needed."""
        if self._tree is None:
            self._tree = RetainedTree(self._leaf(one, slot) for one, slot in self.slots.items())
        return self._tree

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the present rows, without free slots."""
        slots = list(self.slots.values())
        return {
            "slots": dict(zip(self.slots, range(len(slots)), strict=True)),
            "values": self.values[slots],
            "targets": self.targets[slots],
            "_free": [],
            "_tree": None,
            "class_digests": self.class_digests,
        }

    def name_classes(self, names: Sequence[Any]) -> None:
        """Declare that the first target is the number of a class; names are JSON.

        The digest of a row then uses the name, because numbers change when a class disappears.
        """
        self.class_digests = [sha256(encode(name)).digest() for name in names]

    def take_tree(self, other: "RowStore") -> None:
        """Take over the tree of another store, which has the same rows."""
        self._tree = other._tree

    def sorted_ids(self) -> list[str]:
        """Return the ids in the order of their UTF-8."""
        return sorted(self.slots, key=str.encode)

    def slots_of(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the slots of rows.

        Raises EstimatorInputError if an id is unknown. The message does not repeat it: it is
        personal data.
        """
        missing = [i for i, one in enumerate(ids) if one not in self.slots]
        if missing:
            raise EstimatorInputError(
                f"ids: {len(missing)} of {len(ids)} are of no row of this model, the first "
                f"at position {missing[0]}; nothing was changed"
            )
        return np.array([self.slots[one] for one in ids], np.int32)

    def add(
        self, ids: Sequence[str], values: NDArray[Any], targets: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Add rows with distinct ids; return their slots.

        Raises EstimatorInputError if the model already has a row with one of the ids.
        """
        if any(one in self.slots for one in ids):
            raise EstimatorInputError(
                "ids: the model already has a row of one of them: give new ids, or "
                "unlearn it first"
            )
        known = len(self.values)
        wanted = len(ids) - len(self._free)
        if wanted > 0:
            more = max(wanted, known // 2) if known else wanted
            self.values = np.concatenate([self.values, _zeros(self.values, more)])
            self.targets = np.concatenate([self.targets, _zeros(self.targets, more)])
            self._free += range(known + more - 1, known - 1, -1)
        slots = np.array([self._free.pop() for _ in ids], np.int32)
        self.values[slots], self.targets[slots] = values, targets
        self.slots.update(zip(ids, slots.tolist(), strict=True))
        if self._tree is not None:
            for one in ids:
                self._tree.add(*self._leaf(one, self.slots[one]))
        return slots

    def remove(self, ids: Sequence[str]) -> None:
        """Overwrite existing rows, and forget their ids.

        The caller removes them from `tree`, which returns the proof.
        """
        for one in ids:
            slot = self.slots.pop(one)
            self.values[slot], self.targets[slot] = 0, 0
            self._free.append(slot)

    def _leaf(self, record: str, slot: int) -> Leaf:
        targets = self.targets[slot]
        known = targets.tobytes()
        if self.class_digests is not None:
            known = self.class_digests[int(targets[0])] + targets[1:].tobytes()
        content = sha256(_CONTENT + self.values[slot].tobytes() + known)
        return record_commitment(salt_of(record), record), content.digest()


def _zeros(like: NDArray[Any], rows: int) -> NDArray[Any]:
    return np.zeros((rows, like.shape[1]), like.dtype)
