"""What is looked for: identifiers in every form in which Lethe could have written them."""

import base64
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from app.vault.master import RootSecret
from lethe.errors import LetheError

SHORTEST = 4  # bytes of UTF-8; shorter ones are found everywhere by chance
RECORD = b"records.record"  # the one column whose ciphertext can be looked for


class IdentifierError(LetheError):
    """An identifier that cannot be looked for."""

    slug = "identifier"
    title = "The identifier is too short to search for"


class Needles:
    """Identifiers by their number, 1 for the first; nothing here prints them."""

    def __init__(self, identifiers: Iterable[str], root_secret: RootSecret) -> None:
        """Read them.

        Raises:
            IdentifierError: There are none, or one is too short.
        """
        self.texts = list(dict.fromkeys(identifiers))
        if not self.texts:
            raise IdentifierError("standard input names nobody: write one identifier a line")
        for number, text in enumerate(self.texts, 1):
            if len(text.encode()) < SHORTEST:
                raise IdentifierError(
                    f"identifier {number} has fewer than {SHORTEST} bytes: it would be found "
                    "by chance; look for a longer one of the same person"
                )
        self._clear = [(n, form) for n, t in enumerate(self.texts, 1) for form in forms(t)]
        self._sealed = [
            (n, root_secret.seal_name(text.encode(), RECORD))
            for n, text in enumerate(self.texts, 1)
        ]
        # No window between two pieces that are searched may be shorter.
        self.longest = max(len(form) for _, form in (*self._clear, *self._sealed))
        self._root_secret = root_secret

    def clear(self, data: bytes) -> set[int]:
        """Return the numbers of those that `data` holds in clear."""
        return {number for number, form in self._clear if form in data}

    def sealed(self, data: bytes) -> set[int]:
        """Return the numbers of those of which `data` holds the ciphertext of a record id."""
        return {number for number, form in self._sealed if form in data}

    def tags(self, purpose: str) -> set[str]:
        """Return the identifiers' tags in columns of one purpose."""
        return {self._root_secret.tag(purpose, text) for text in self.texts}


def forms(text: str) -> set[bytes]:
    """Return UTF-8, UTF-16, UTF-32 (numpy's), escaped JSON, hexadecimal and base64."""
    plain = text.encode()
    found = {plain, text.encode("utf-16-le"), text.encode("utf-32-le"), plain.hex().encode()}
    found.add(json.dumps(text)[1:-1].encode())
    for shift in range(3):
        # Only the characters that no neighbour has a part in.
        start = -(-shift * 8 // 6)
        whole = (shift + len(plain)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            form = encode(bytes(shift) + plain)[start:whole]
            if len(form) >= 2 * SHORTEST:
                found.add(form)
    return found


# What no process can see from where it runs. The officer guide says what to do about each.
ELSEWHERE = (
    "backups and snapshots of the database and of the data directory: let them expire, or "
    "restore only through the journal of erasures",
    "replicas, archived WAL and logical subscribers of the database",
    "logs of containers, of a reverse proxy and of the database server",
    "files that were exported or downloaded: evidence, score files, model files",
    "what clients and silos keep on their own machines",
)


@dataclass(slots=True)
class Findings:
    """Counts by place.

    leftovers: what must not be there. kept: what stays on purpose, and until when.
    remnants: ciphertext in space that the database has not used again. not_inspected: places
    that could not be read, and why.
    """

    leftovers: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    remnants: Counter[str] = field(default_factory=Counter)
    inspected: Counter[str] = field(default_factory=Counter)
    not_inspected: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is left that must not be there."""
        return not self.leftovers

    def as_json(self) -> dict[str, Any]:
        """Return all of it as a JSON object."""
        return {
            "result": "PASS" if self.ok else "FAIL",
            "leftovers": dict(sorted(self.leftovers.items())),
            "kept": dict(sorted(self.kept.items())),
            "remnants": dict(sorted(self.remnants.items())),
            "inspected": dict(sorted(self.inspected.items())),
            "not_inspected": self.not_inspected,
            "elsewhere": list(ELSEWHERE),
        }
