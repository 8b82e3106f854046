"""The search terms: identifiers in every form in which Lethe could have written them."""

import base64
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from app.vault.master import RootSecret
from lethe.errors import LetheError

SHORTEST = 4  # bytes of UTF-8; shorter identifiers are found everywhere by chance
RECORD = b"records.record"  # the only column whose ciphertext can be searched for


class IdentifierError(LetheError):
    """An identifier that cannot be searched for."""

    slug, title = "identifier", "The identifier is too short to search for"


class Needles:
    """Identifiers by number, from 1; nothing here prints them."""

    def __init__(self, identifiers: Iterable[str], root_secret: RootSecret) -> None:
        """Compute the forms to search for, of each identifier as `lethe.ids` spells it.

        Raises IdentifierError: there is no identifier, or one is too short.
        """
        spelled = (unicodedata.normalize("NFC", text.strip()) for text in identifiers)
        self.texts = list(dict.fromkeys(spelled))
        if not self.texts:
            raise IdentifierError("standard input is empty: write one identifier a line")
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
        # The minimum overlap between two searched pieces.
        self.longest = max(len(form) for _, form in (*self._clear, *self._sealed))
        self._root_secret = root_secret

    def clear(self, data: bytes) -> set[int]:
        """Return the numbers of the identifiers that `data` contains in clear."""
        return {number for number, form in self._clear if form in data}

    def sealed(self, data: bytes) -> set[int]:
        """Return the numbers of the identifiers that `data` contains as sealed record ids."""
        return {number for number, form in self._sealed if form in data}

    def tags(self, purpose: str) -> set[str]:
        """Return the identifiers' tags in columns of one purpose."""
        return {self._root_secret.tag(purpose, text) for text in self.texts}


def forms(text: str) -> set[bytes]:
    """Return UTF-8, UTF-16, UTF-32 (numpy's), escaped JSON, hexadecimal and base64.

    Of Unicode's forms NFC and NFD: ids are in the first, a note may be in the second.
    """
    composed, other = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    return _forms(composed) if composed == other else _forms(composed) | _forms(other)


def _forms(text: str) -> set[bytes]:
    plain = text.encode()
    found = {plain, text.encode("utf-16-le"), text.encode("utf-32-le"), plain.hex().encode()}
    found.add(json.dumps(text)[1:-1].encode())
    for shift in range(3):
        # Only the characters that do not depend on neighbouring bytes.
        start = -(-shift * 8 // 6)
        whole = (shift + len(plain)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            form = encode(bytes(shift) + plain)[start:whole]
            if len(form) >= 2 * SHORTEST:
                found.add(form)
    return found


# Places out of a process's reach. The officer guide says what to do about each.
ELSEWHERE = (
    "backups and snapshots of the database and of the data directory: let them expire, or "
    "restore only through the journal of erasures",
    "replicas, archived WAL and logical subscribers of the database",
    "logs of containers, of a reverse proxy and of the database server; caches of the proxy",
    "swap space and hibernation images, which have memory of running processes",
    "files that were exported or downloaded: evidence, score files, model files",
    "what clients and silos keep on their own machines",
)


@dataclass(slots=True)
class Findings:
    """Counts by place.

    leftovers: data that must not be there. kept: data retained on purpose, and until when.
    remnants: ciphertext in space that the database has not reused. not_inspected: places that
    could not be read, and why.
    """

    leftovers: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    remnants: Counter[str] = field(default_factory=Counter)
    inspected: Counter[str] = field(default_factory=Counter)
    not_inspected: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there are no leftovers."""
        return not self.leftovers

    def as_json(self) -> dict[str, Any]:
        """Return the findings as a JSON object."""
        return {
            "result": "PASS" if self.ok else "FAIL",
            "leftovers": dict(sorted(self.leftovers.items())),
            "kept": dict(sorted(self.kept.items())),
            "remnants": dict(sorted(self.remnants.items())),
            "inspected": dict(sorted(self.inspected.items())),
            "not_inspected": self.not_inspected,
            "elsewhere": list(ELSEWHERE),
        }
