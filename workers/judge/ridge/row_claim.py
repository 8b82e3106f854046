"""What is claimed of the contents of a ridge head's rows, beside the rows themselves."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class BlockClaim:
    """Whose a block of rows is, and what its digests need: one place for each of its rows.

    records: ids. salts (m, 32) uint8. learned (m,) int64: numbers of versions.
    """

    client: str
    subject: str
    records: Sequence[str]
    salts: NDArray[np.uint8]
    learned: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowsClaim:
    """The stored blocks, in the order of the claim's rows, and the digests in the log.

    gone: hex digest, and number of the version that it came with, of each row that the update
    removed. since: number of the last version that an erasure or a refit made, 0 if none did;
    before: the hex digests of the rows of that version and of all after it, up to the one
    before the update. after: of the one published. None: the log has none.
    """

    blocks: Sequence[BlockClaim]
    gone: Sequence[tuple[str, int]]
    since: int
    before: Sequence[str | None]
    after: str | None
