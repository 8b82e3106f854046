"""Which shard a row is in: a keyed hash that outsiders can neither choose nor compute."""

import hashlib
import hmac

MOST_SHARDS = 256


def shard_of(key: bytes, name: str, shards: int) -> int:
    """Return the shard, 0 to shards - 1, of a name: a person's or a record's.

    The remainder of 64 bits of HMAC-SHA256: of at most MOST_SHARDS, none is likelier by more
    than 2^-56.
    """
    digest = hmac.new(key, name.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "big") % shards
