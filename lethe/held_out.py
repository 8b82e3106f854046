"""Which records are never trained on: a function of their ids, the same for all parties."""

import hashlib


def is_held_out(seed: int, share: float, record: str) -> bool:
    """Return whether a record belongs to the `share` (0 to 1) that training leaves out.

    Independent of the record's content and of all others: held-out and training records
    differ only by chance.
    """
    drawn = hashlib.sha256(f"held-out|{seed}|{record}".encode()).digest()[:8]
    return int.from_bytes(drawn, "big") < share * 2.0**64
