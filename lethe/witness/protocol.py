"""The body of `add-checkpoint` (C2SP tlog-witness).

old <size>
<proof line>...
<empty line>
<checkpoint>
"""

from lethe.canonical import format_base64, parse_base64, parse_decimal
from lethe.errors import LetheError
from lethe.log.tree import HASH_SIZE, MAX_SIZE
from lethe.records import dataclass

PATH = "add-checkpoint"
SIZE_TYPE = "text/x.tlog.size"  # of the answer 409
MAX_PROOF = 63  # lines, "MUST NOT send more"
MAX_BODY = 512 * 1024  # bytes; a note with a hundred ML-DSA-44 lines has 330,000


class RequestError(LetheError):
    """A body that is not that of `add-checkpoint`."""

    slug, title, status = "bad-add-checkpoint", "Not an add-checkpoint request", 400


@dataclass(frozen=True, slots=True)
class AddCheckpoint:
    """A log's request: the witness's last size, the proof from there, and the signed note."""

    old: int
    proof: tuple[bytes, ...]
    note: str


def format_add_checkpoint(request: AddCheckpoint) -> bytes:
    """Return the body."""
    lines = [f"old {request.old}", *map(format_base64, request.proof), "", request.note]
    return "\n".join(lines).encode()


def parse_add_checkpoint(body: bytes) -> AddCheckpoint:
    """Parse a body; note and proof are not verified.

    Raises RequestError: malformed, or not in the spelling of `format_add_checkpoint`.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise RequestError("the body is not UTF-8") from None
    head, separator, note = text.partition("\n\n")
    first, *lines = head.split("\n")
    if not separator or not note or not first.startswith("old "):
        raise RequestError("the body is: old <size>, proof lines, an empty line, a checkpoint")
    if len(lines) > MAX_PROOF:
        raise RequestError(f"a proof has at most {MAX_PROOF} lines")
    try:
        old = parse_decimal(first.removeprefix("old "), MAX_SIZE + 1)
        proof = tuple(map(parse_base64, lines))
    except ValueError:
        raise RequestError("the old size is decimal, and proof lines are base64") from None
    if any(len(one) != HASH_SIZE for one in proof):
        raise RequestError(f"a proof line is a hash of {HASH_SIZE} bytes")
    return AddCheckpoint(old, proof, note)


def format_size(size: int) -> bytes:
    """Return the body of an answer 409."""
    return f"{size}\n".encode()


def parse_size(body: bytes) -> int:
    """Parse the body of an answer 409. Raises RequestError: it is not a tree size."""
    try:
        line = body.decode("ascii")
        if not line.endswith("\n"):
            raise ValueError
        return parse_decimal(line[:-1], MAX_SIZE + 1)
    except ValueError:
        raise RequestError("the answer is not a tree size") from None
