"""A round as the service shows it to a member: its shape, before anything in it is used."""

from typing import Any

from lethe.client.answers import Document
from workers.secure_sum.errors import MalformedMessageError

KINDS: dict[str, type] = {"id": str, "model": str, "state": str, "plan": dict, "member": bool}
# What a member needs for its message of a step, each a list of texts; `sealed` is apart.
NEEDED: dict[str, tuple[str, ...]] = {
    "share": ("advertised",),
    "masked": ("held", "release"),
    "confirm": ("statements",),
    "reveal": ("confirmed",),
}


def checked(work: Document) -> Document:
    """Return a member's view of a round.

    Raises MalformedMessageError if it lacks what the member needs, or has it in another shape:
    the service may be dishonest.
    """
    for name, kind in KINDS.items():
        if type(work.get(name)) is not kind:
            raise _malformed(name)
    if type(work.get("counted", False)) is not bool:
        raise _malformed("counted")
    if not work["member"]:
        return work
    for name in NEEDED.get(work["state"], ()):
        if not _are_texts(work.get(name)):
            raise _malformed(name)
    if work["state"] == "masked":
        sealed = work.get("sealed")
        if not isinstance(sealed, dict) or not _are_texts([*sealed, *sealed.values()]):
            raise _malformed("sealed")
    return work


def _are_texts(found: Any) -> bool:
    """Return whether this is a list of texts without half characters, which JSON may have."""
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        return False
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        return False
    return True


def _malformed(name: str) -> MalformedMessageError:
    return MalformedMessageError(
        f"the service's view of the round has no {name!r} of the documented shape: tell its "
        "operator"
    )
