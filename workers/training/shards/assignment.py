"""Which shard a row is in: a keyed hash, so that nobody outside can choose or compute it."""

import hashlib
import hmac

MOST_SHARDS = 256


def shard_of(key: bytes, name: str, shards: int) -> int:
    """Return the shard, 0 to shards - 1, of whatever is called `name`: a person or a record.

    The remainder of 64 bits of HMAC-SHA256: of at most MOST_SHARDS, none is likelier by more
    than 2^-56.
    """
    digest = hmac.new(key, name.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "big") % shards
