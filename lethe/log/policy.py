"""Trust policies: which logs and witnesses count, and how many (C2SP tlog-policy).

    log <vkey> [<url>]
    witness <name> <vkey> [<url>]
    group <name> all|any|<k> <name>...
    quorum <name>|none

A checkpoint is valid under a policy if one of its logs signed it and its quorum of witnesses
cosigned it. Names of witnesses and groups mean nothing outside the file.
"""

import re
from collections.abc import Set

from lethe.canonical import parse_decimal
from lethe.errors import LetheError
from lethe.log.note import COSIGNATURE, ED25519, ML_DSA_44, NoteError, NoteVerifier, parse_vkey
from lethe.records import dataclass

MAX_POLICY = 1 << 20  # bytes
MAX_DEFINED = 1000  # logs, witnesses and groups; the specification asks for 32 of each
NONE = "none"
WITNESS_KINDS = (COSIGNATURE, ML_DSA_44)
_ALLOWED = re.compile(rb"[\t\n\x20-\x7e\x80-\xff]*")  # "Character set"


class PolicyError(LetheError):
    """A file that is not a trust policy; the message names the line."""

    slug, title, status = "bad-policy", "Not a trust policy", 400


@dataclass(frozen=True, slots=True)
class PolicyLog:
    """A log that the policy accepts."""

    key: NoteVerifier
    url: str | None


@dataclass(frozen=True, slots=True)
class PolicyWitness:
    """A witness. `url` is its submission prefix (C2SP tlog-witness), None if not given."""

    name: str
    key: NoteVerifier
    url: str | None


@dataclass(frozen=True, slots=True)
class PolicyGroup:
    """At least `least` of `members`, which are names of witnesses and earlier groups."""

    name: str
    least: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """A parsed policy. `quorum` is the name of a witness or group, "none" for no witness."""

    logs: tuple[PolicyLog, ...]
    witnesses: tuple[PolicyWitness, ...]
    groups: tuple[PolicyGroup, ...]
    quorum: str

    @property
    def keys(self) -> tuple[NoteVerifier, ...]:
        """The keys of all witnesses, in the file's order."""
        return tuple(witness.key for witness in self.witnesses)

    def accepts(self, log: NoteVerifier) -> bool:
        """Return whether the policy lists the log; a policy without logs accepts any."""
        return not self.logs or any(one.key.vkey == log.vkey for one in self.logs)

    def is_met(self, signed: Set[str]) -> bool:
        """Return whether the quorum is met by the cosignatures of these vkeys."""
        if self.quorum == NONE:
            return True
        done = {one.name for one in self.witnesses if one.key.vkey in signed}
        for group in self.groups:  # a group only names members defined before it
            if sum(member in done for member in group.members) >= group.least:
                done.add(group.name)
        return self.quorum in done


def parse_policy(data: bytes) -> Policy:
    """Parse a policy file.

    Raises PolicyError: malformed, or a key is not a log's or a witness's.
    """
    if len(data) > MAX_POLICY:
        raise PolicyError(f"a policy has at most {MAX_POLICY} bytes")
    if not _ALLOWED.fullmatch(data):
        raise PolicyError("a policy has no control characters but tab and newline")
    if data and not data.endswith(b"\n"):
        raise PolicyError("the last line of the policy does not end in a newline")
    draft = _Draft()
    # Bytes above 0x7F are opaque: names with them are compared, never interpreted.
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), start=1):
        items = [item for item in re.split("[ \t]+", line) if item]
        if items and not items[0].startswith("#"):
            try:
                draft.add(items)
            except (PolicyError, NoteError) as error:
                raise PolicyError(f"line {number} of the policy: {error.detail}") from None
    return draft.policy()


class _Draft:
    """The definitions from the lines so far."""

    def __init__(self) -> None:
        self._logs: list[PolicyLog] = []
        self._witnesses: list[PolicyWitness] = []
        self._groups: list[PolicyGroup] = []
        self._names: set[str] = set()
        self._quorum: str | None = None

    def add(self, items: list[str]) -> None:
        if len(self._logs) + len(self._witnesses) + len(self._groups) >= MAX_DEFINED:
            raise PolicyError(f"more than {MAX_DEFINED} logs, witnesses and groups")
        match items:
            case ["log", vkey, *url] if len(url) <= 1:
                key = _key(vkey, (ED25519,), "a log's key is Ed25519 (0x01)")
                _require_new(key, [one.key for one in self._logs])
                self._logs.append(PolicyLog(key, url[0] if url else None))
            case ["witness", name, vkey, *url] if len(url) <= 1:
                self._define(name)
                kinds = "a witness's key is Ed25519 (0x04) or ML-DSA-44 (0x06) with a time"
                key = _key(vkey, WITNESS_KINDS, kinds)
                _require_new(key, [one.key for one in self._witnesses])
                self._witnesses.append(PolicyWitness(name, key, url[0] if url else None))
            case ["group", name, least, *members] if members:
                self._add_group(name, least, members)
            case ["quorum", name]:
                if self._quorum is not None:
                    raise PolicyError("a second quorum")
                if name != NONE:
                    self._require_known(name)
                self._quorum = name
            case _:
                raise PolicyError(
                    "not one of: log <vkey> [<url>]; witness <name> <vkey> [<url>]; "
                    "group <name> all|any|<k> <name>...; quorum <name>"
                )

    def policy(self) -> Policy:
        if self._quorum is None:
            raise PolicyError(
                "the policy has no quorum line: add 'quorum NAME' with a witness or a group, "
                "or 'quorum none'"
            )
        return Policy(
            tuple(self._logs), tuple(self._witnesses), tuple(self._groups), self._quorum
        )

    def _add_group(self, name: str, least: str, members: list[str]) -> None:
        for member in members:
            self._require_known(member)
        self._define(name)
        if len(set(members)) < len(members) or any(
            member in group.members for group in self._groups for member in members
        ):
            raise PolicyError("a name is a member of a group twice: it could count twice")
        try:
            number = {"all": len(members), "any": 1}.get(least) or parse_decimal(least, 10**6)
        except ValueError:
            number = 0
        if not 1 <= number <= len(members):
            raise PolicyError("a group needs all, any, or a number from 1 to its members'")
        self._groups.append(PolicyGroup(name, number, tuple(members)))

    def _define(self, name: str) -> None:
        if name == NONE or name in self._names:
            raise PolicyError("the name is taken")
        self._names.add(name)

    def _require_known(self, name: str) -> None:
        if name not in self._names:
            raise PolicyError("a name that no line before this one defines")


def _key(vkey: str, kinds: tuple[bytes, ...], wanted: str) -> NoteVerifier:
    try:
        vkey.encode()
    except UnicodeEncodeError:
        raise PolicyError("a key name is valid UTF-8") from None
    key = parse_vkey(vkey)
    if key.kind not in kinds:
        raise PolicyError(wanted)
    return key


def _require_new(key: NoteVerifier, before: list[NoteVerifier]) -> None:
    # "Two vkeys are considered duplicate if they wrap the same underlying public key".
    raw = key.key.public_bytes_raw()
    if any(one.key.public_bytes_raw() == raw for one in before):
        raise PolicyError("the same public key twice")
