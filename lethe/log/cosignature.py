"""What a witness signs of a checkpoint (C2SP tlog-cosignature): each line has a time.

0x04  Ed25519: the lines "cosignature/v1" and "time <seconds>", then the note's whole text
0x06  ML-DSA-44: a structure of cosigner, time, origin, size and root; no extension lines
"""

from lethe.canonical import parse_base64, parse_decimal

TIME_SIZE = 8  # bytes of the big-endian seconds since 1970 before the signature
MAX_TIME = 2**63 - 1
HASH_SIZE = 32
_LABEL = b"subtree/v1\n\0"  # 12 bytes, "ML-DSA-44 signed message"


def split_cosignature(data: bytes) -> tuple[int, bytes]:
    """Return the time and the signature of a `timestamped_signature`.

    Raises ValueError: too short, or a time that the format does not allow.
    """
    time = int.from_bytes(data[:TIME_SIZE], "big")
    if len(data) <= TIME_SIZE or time > MAX_TIME:
        raise ValueError("a cosignature is a time below 2**63 and a signature")
    return time, data[TIME_SIZE:]


def ed25519_message(time: int, text: str) -> bytes:
    """Return what a cosigner of type 0x04 signs over a checkpoint's text."""
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def ml_dsa_message(cosigner: str, time: int, text: str) -> bytes:
    """Return what a cosigner of type 0x06 signs over a checkpoint's text.

    Raises ValueError: the text is not a checkpoint, or a name has more than 255 bytes.
    """
    origin, size, root, *_ = (*text.split("\n"), "", "")
    end, digest = parse_decimal(size, MAX_TIME + 1), parse_base64(root)
    if len(digest) != HASH_SIZE:
        raise ValueError("not a root")
    stamp, start = time.to_bytes(TIME_SIZE, "big"), bytes(8)
    tree = start + end.to_bytes(8, "big") + digest
    return _LABEL + _opaque(cosigner) + stamp + _opaque(origin) + tree


def _opaque(text: str) -> bytes:
    data = text.encode()
    if not 0 < len(data) < 256:
        raise ValueError("a name has from 1 to 255 bytes")
    return bytes([len(data)]) + data
