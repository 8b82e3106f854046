"""Ed25519 public keys that bind nobody: under a point of small order anybody signs any text.

RFC 8032 leaves the check to those who trust the key. OpenSSL makes none, and some browsers do:
without it, a log could deny what it signed, and two verifiers would disagree.
"""

_P = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
# The y of the eight points whose order divides 8 (RFC 7748, section 4.1: the cofactor is 8).
_SMALL = frozenset({0, 1, _P - 1, _ORDER_8, _P - _ORDER_8})


def is_weak(key: bytes) -> bool:
    """Return whether 32 bytes encode a point of small order, or one in a second spelling."""
    y = int.from_bytes(key, "little") & (2**255 - 1)  # the last bit is the sign of x
    return y >= _P or y in _SMALL
