"""A trust root says what its log signed, and nothing that somebody else made of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lethe import canonical
from lethe.certificates.bundle import spki_of
from lethe.certificates.issuers import IssuerError, IssuerKeys
from lethe.certificates.trust_root import (
    AnnouncementPart,
    TrustRootError,
    build_trust_root,
    parse_trust_root,
    trust_root_schema,
)
from lethe.certificates.verify import Verdict, verify, verify_certificate
from lethe.cli.certificate import certificate
from lethe.log.checkpoint import CheckpointError, parse_checkpoint, sign_checkpoint
from lethe.log.entries import EntryError, parse_leaf, service_key_leaf
from lethe.log.fetch import MAX_TRUST_ROOT
from lethe.log.key_changes import ANNOUNCED, LOG, REVOKED, ROTATED, KeyChange
from lethe.log.key_history import KeyHistoryError, replay
from lethe.log.log_keys import LogKey, LogKeys, spki_of_log, trust_text
from lethe.log.note import COSIGNATURE, NoteError, NoteSigner, NoteVerifier, sign_note
from tests.lethe.certificates.build import KEYID, Certified, Office, issuer_key, log_signer
from tests.schemas import validator

DOCS = Path(__file__).parents[3] / "docs"
DAY, NOW = date(2026, 11, 21), datetime(2026, 11, 24, 9, tzinfo=UTC)


def spki(secret: int) -> bytes:
    return spki_of(issuer_key(secret).public_key())


FIRST = KeyChange(ANNOUNCED, KEYID, spki(2026))
SECOND = KeyChange(ROTATED, "next", spki(5), replaces=spki(2026))
# SubjectPublicKeyInfo (RFC 8410) of the neutral point, under which anybody signs.
NEUTRAL = bytes.fromhex("302a300506032b6570032100") + bytes([1]) + bytes(31)
GONE = KeyChange(REVOKED, KEYID, spki(2026), reason="key-compromise")


class Published(Office):
    """An office whose log has entries on its keys, and the trust root of it."""

    def say(self, *changes: KeyChange) -> None:
        for change in changes:
            self.log.append(service_key_leaf(change, DAY))
            if change == SECOND:
                self.key, self.keyid = issuer_key(5), "next"

    def root(self, signer: NoteSigner | None = None, **changes: Any) -> bytes:
        entries = [
            (index, leaf, self.log.proof(index))
            for index, leaf in enumerate(self.log.leaves)
            if b'"kind":"service-key-event"' in leaf
        ]
        said = [
            (index, change) for index, leaf, _ in entries if (change := parse_leaf(leaf).key)
        ]
        by = signer or self.log.signer
        given: dict[str, Any] = {
            "made_at": NOW,
            "log": [(LogKey(self.log.verifier), None)],
            "checkpoint_note": self.log.checkpoint(),
            "issuers": replay(said, (KEYID, spki(2026))),
            "entries": entries,
            "sign": lambda digest: line(by, digest),
        }
        return build_trust_root(**given | changes)


def line(signer: NoteSigner, digest: bytes) -> str:
    return sign_note(trust_text(signer.name, digest), signer).rpartition("\n\n")[2]


def told(certified: Certified, root: bytes) -> Verdict:
    known = parse_trust_root(root)
    return verify_certificate(certified.bundle, log=known.log, issuer=known.issuers)


def refusal(certified: Certified, root: bytes) -> tuple[int, str]:
    failed = told(certified, root).failed
    assert failed is not None
    return failed.number, failed.detail


def resigned(
    root: bytes, change: Callable[[dict[str, Any]], None], signer: NoteSigner | None = None
) -> bytes:
    """Return another file with the log's signature over it: what only the log's key can make."""
    members = json.loads(root)
    change(members)
    members.pop("signature")
    digest = sha256(canonical.encode(members)).digest()
    members["signature"] = line(signer or log_signer(), digest)
    return canonical.encode(members)


def test_the_place_in_the_log_decides() -> None:
    office = Published()
    before = office.certify()
    office.say(FIRST, SECOND)
    after = office.certify()
    office.say(GONE)
    root = office.root()
    assert told(before, root).result == told(after, root).result == "PASS"
    assert verify(before.bundle, trust_root=root).result == "PASS"
    office.key, office.keyid = issuer_key(), KEYID
    dated_back = office.certify(completed_at=datetime(2020, 1, 1, tzinfo=UTC))
    number, why = refusal(dated_back, office.root())
    assert (number, "was revoked at entry" in why) == (5, True)
    # Without the trust root nobody sees it: that is what the trust root is for.
    assert dated_back.verify().result == "PASS"


def test_a_replaced_key_signs_no_more_though_nobody_revoked_it() -> None:
    office = Published()
    office.say(FIRST, SECOND)
    office.key, office.keyid = issuer_key(), KEYID
    number, why = refusal(office.certify(), office.root())
    assert (number, "was replaced at entry" in why) == (5, True)
    office.key, office.keyid = issuer_key(77), "stranger"
    number, why = refusal(office.certify(), office.root())
    assert (number, "no such key" in why) == (2, True)


def test_an_old_trust_root_hides_no_revocation() -> None:
    office = Published()
    early = office.certify()
    old = office.root()
    office.say(FIRST, GONE)
    late = office.certify()
    assert told(early, old).result == told(early, office.root()).result == "PASS"
    number, why = refusal(late, old)
    assert (number, "newer than the trust root" in why) == (5, True)
    assert "was revoked" in refusal(late, office.root())[1]


def test_a_certificate_of_another_branch_is_a_fork() -> None:
    office, other = Published(), Published()
    office.say(FIRST)
    certified = office.certify()
    other.say(FIRST)
    other.certify(completed_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert len(office.log.leaves) == len(other.log.leaves)
    number, why = refusal(certified, other.root())
    assert (number, "forked" in why) == (5, True)


def test_a_certificate_that_is_not_in_the_log_is_refused() -> None:
    office, elsewhere = Published(), Published()
    elsewhere.log.signer = log_signer(seed=b"theirs")
    number, _ = refusal(elsewhere.certify(), office.root())
    assert number == 5


def change(name: str) -> Callable[[dict[str, Any]], None]:
    def run(members: dict[str, Any]) -> None:
        match name:
            case "a revocation is left out":
                members["entries"].pop()
                members["issuerKeys"][0]["revoked"] = None
            case "the keys say otherwise than the entries":
                members["issuerKeys"][0]["revoked"] = None
            case "an entry is not in the tree":
                members["entries"][0]["logIndex"] = "4"
            case "an entry is there twice":
                members["entries"].append(members["entries"][-1])
            case "no key at all":
                members["entries"], members["issuerKeys"] = [], []
            case "a first key of no curve":
                members["entries"] = []
                members["issuerKeys"] = members["issuerKeys"][:1]
                members["issuerKeys"][0] |= {
                    "publicKey": "AAAA",
                    "until": None,
                    "revoked": None,
                }
            case _:
                members["madeAt"] = "2027-01-01T00:00:00Z"

    return run


CHANGES = (
    "a revocation is left out",
    "the keys say otherwise than the entries",
    "an entry is not in the tree",
    "an entry is there twice",
    "no key at all",
    "a first key of no curve",
    "a later date",
)


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_file_is_not_the_logs(name: str) -> None:
    office = Published()
    office.say(FIRST, SECOND, GONE)
    root = office.root()
    members = json.loads(root)
    change(name)(members)
    with pytest.raises(TrustRootError):
        parse_trust_root(canonical.encode(members), log_signer().verifier)


@pytest.mark.parametrize("name", CHANGES[1:-1])
def test_what_contradicts_itself_is_refused_though_the_log_signed_it(name: str) -> None:
    office = Published()
    office.say(FIRST, SECOND, GONE)
    with pytest.raises(TrustRootError):
        parse_trust_root(resigned(office.root(), change(name)))
    assert parse_trust_root(resigned(office.root(), lambda _: None)).issuers.size == 6


def test_the_issuers_key_and_other_logs_sign_no_trust_root() -> None:
    office = Published()
    with pytest.raises(TrustRootError):
        office.root(signer=log_signer(seed=b"theirs"))
    root = office.root()
    with pytest.raises(TrustRootError, match="another log"):
        parse_trust_root(root, log_signer(seed=b"theirs").verifier)
    assert parse_trust_root(root + b"\n").log.verifiers == [office.log.verifier]
    # A signature over a checkpoint is none over a trust root.
    members = json.loads(root)
    members["signature"] = members["checkpoint"].rpartition("\n\n")[2]
    with pytest.raises(TrustRootError):
        parse_trust_root(canonical.encode(members))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b" " * (MAX_TRUST_ROOT + 1)])
def test_what_is_no_trust_root_is_refused(data: bytes) -> None:
    with pytest.raises(TrustRootError):
        parse_trust_root(data)


def test_a_trust_root_that_does_not_verify_is_named_with_the_remedy() -> None:
    office = Published()
    root = office.root().replace(b'"madeAt":"2026', b'"madeAt":"2027')
    with pytest.raises(TrustRootError) as caught:
        parse_trust_root(root)
    assert caught.value.detail == (
        "the trust root does not verify: the note carries a wrong signature by a known key; "
        "get it again from the operator, over a channel you trust"
    )


def test_every_byte_counts() -> None:
    office = Published()
    office.say(FIRST, SECOND)
    root = office.root()
    for place in range(0, len(root), 7):
        changed = root[:place] + bytes([root[place] ^ 1]) + root[place + 1 :]
        with pytest.raises(TrustRootError):
            parse_trust_root(changed, office.log.verifier)


def test_keys_or_a_trust_root_and_not_both(tmp_path: Path) -> None:
    path = tmp_path / "root.json"
    office = Published()
    bundle = office.certify().bundle
    path.write_bytes(office.root())
    assert verify(bundle, trust_root=path).result == "PASS"
    with pytest.raises(ValueError, match="give keys or"):
        verify(bundle)
    with pytest.raises(ValueError, match="give keys or"):
        verify(bundle, keys=tmp_path, trust_root=path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([FIRST, FIRST], "second time"),
        ([FIRST, replace(FIRST, keyid="other", key=spki(5))], "begins"),
        ([SECOND], "begins"),
        ([FIRST, replace(SECOND, replaces=spki(9))], "another key than the last"),
        ([FIRST, replace(SECOND, keyid=KEYID)], "second time"),
        ([FIRST, replace(GONE, key=spki(9))], "nobody had"),
        ([FIRST, replace(GONE, keyid="other")], "nobody had"),
    ],
)
def test_entries_that_contradict_each_other(changes: list[KeyChange], why: str) -> None:
    with pytest.raises(KeyHistoryError, match=why):
        replay(enumerate(changes, 7), (KEYID, spki(2026)))


def test_a_second_revocation_changes_nothing() -> None:
    again = replace(GONE, reason="superseded")
    (key,) = replay([(3, FIRST), (5, GONE), (9, again)], ("", b""))
    assert (key.start, key.revoked, key.reason) == (0, 5, "key-compromise")
    assert IssuerKeys((key,), 10).current is None
    with pytest.raises(IssuerError, match="signs from entry 4 on"):
        IssuerKeys((replace(key, start=4),), 10).check(key.spki, 3)


@pytest.mark.parametrize(
    "change",
    [
        replace(FIRST, role="log"),
        replace(FIRST, role="log", keyid="00000000", key=NEUTRAL),
        replace(FIRST, role="master"),
        replace(FIRST, keyid="jane@example.org"),
        replace(FIRST, key=b"no key"),
        replace(FIRST, replaces=spki(5)),
        replace(SECOND, replaces=None),
        replace(SECOND, replaces=b"no key"),
        replace(GONE, reason="she asked for it"),
        replace(GONE, event="key.eaten"),
    ],
)
def test_the_log_takes_no_other_shape(change: KeyChange) -> None:
    with pytest.raises(EntryError):
        service_key_leaf(change, DAY)


@pytest.mark.parametrize("name", ["event", "role", "keyid", "publicKey", "replaces", "at"])
def test_an_entry_that_lacks_a_member_is_none(name: str) -> None:
    entry = json.loads(service_key_leaf(SECOND, DAY))
    assert parse_leaf(canonical.encode(entry)).key == SECOND
    entry["spec"].pop(name)
    with pytest.raises(EntryError):
        parse_leaf(canonical.encode(entry))
    entry["spec"][name] = 7
    with pytest.raises(EntryError):
        parse_leaf(canonical.encode(entry))


def test_the_published_schema_is_that_of_the_file() -> None:
    published = json.loads((DOCS / "schemas/trust-root-v1.json").read_text())
    assert published == trust_root_schema(), "lethe certificate schema --trust-root"
    office = Published()
    office.say(FIRST, SECOND, GONE)
    assert validator(published).is_valid(json.loads(office.root()))
    printed = CliRunner().invoke(certificate, ["schema", "--trust-root"])
    assert json.loads(printed.output) == published


def test_the_command_takes_a_trust_root_and_a_known_log_key(tmp_path: Path) -> None:
    office = Published()
    office.say(FIRST)
    certified = office.certify()
    office.say(SECOND)
    file, root, pinned = (tmp_path / name for name in ("cert", "root.json", "log.vkey"))
    file.write_bytes(certified.bundle)
    root.write_bytes(office.root())
    pinned.write_text(office.log.verifier.vkey)

    def run(*words: Any) -> Result:
        return CliRunner().invoke(certificate, ["verify", str(file), *map(str, words)])

    done = run("--trust-root", root)
    assert (done.exit_code, done.output.startswith("trust root of lethe.example/log")) == (
        0,
        True,
    )
    assert "2026-11-24 09:00:00Z" in done.output
    assert run("--trust-root", root, "--log-key", pinned).exit_code == 0
    pinned.write_text(log_signer(seed=b"theirs").verifier.vkey)
    other = run("--trust-root", root, "--log-key", pinned)
    assert isinstance(other.exception, TrustRootError)
    assert run("--trust-root", root, "--keys", tmp_path).exit_code == 2
    assert json.loads(run("--trust-root", root, "--json").output)["result"] == "PASS"
    made = tmp_path / "made"
    for command in ("report", "cyclonedx"):
        words = [command, str(file), "--out", str(made), "--trust-root", str(root)]
        assert CliRunner().invoke(certificate, words).exit_code == 0
        assert CliRunner().invoke(certificate, [*words, "--keys", str(tmp_path)]).exit_code == 2
    bare = CliRunner().invoke(certificate, ["cyclonedx", str(file)])
    assert (bare.exit_code, "--keys or --trust-root" in bare.output) == (2, True)


# --- the log's own key -----------------------------------------------------------------------

NEXT = log_signer(seed=b"next")


def of_log(event: str, signer: NoteSigner, **fields: Any) -> KeyChange:
    key = signer.verifier
    return KeyChange(event, key.key_id.hex(), spki_of_log(key), LOG, **fields)


class Rotated(Published):
    """An office whose log goes from its key to NEXT; a certificate of each time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.old = self.log.signer
        self.before = self.certify()
        self.say(of_log(ANNOUNCED, self.old))
        self.start = len(self.log.leaves)
        self.say(of_log(ROTATED, NEXT, replaces=spki_of_log(self.old.verifier)))
        self.announced = AnnouncementPart(
            self.log.checkpoint(), tuple(self.log.proof(self.start))
        )
        self.revoked = len(self.log.leaves)
        self.say(of_log(REVOKED, self.old, reason="superseded"))
        self.log.signer = NEXT
        self.after = self.certify()

    def root(self, signer: NoteSigner | None = None, **changes: Any) -> bytes:
        keys = [
            (LogKey(self.old.verifier, 0, self.revoked, "superseded"), None),
            (LogKey(NEXT.verifier, self.start), self.announced),
        ]
        return super().root(signer, **({"log": keys} | changes))


def test_a_trust_root_leads_from_the_old_key_of_the_log_to_the_new() -> None:
    office = Rotated()
    root = office.root()
    assert told(office.before, root).result == told(office.after, root).result == "PASS"
    for known in (office.old.verifier, NEXT.verifier):
        assert len(parse_trust_root(root, known).log.keys) == 2
    assert office.after.verify(log=office.old.verifier).result == "FAIL"
    with pytest.raises(TrustRootError, match="another log"):
        parse_trust_root(root, log_signer(seed=b"theirs").verifier)


def test_the_old_key_of_the_log_signs_no_tree_over_its_revocation() -> None:
    office = Rotated()
    root = office.root()
    office.log.signer = office.old
    number, why = refusal(office.certify(), office.root(signer=NEXT, **at_new(office)))
    assert (number, "was revoked by entry" in why) == (5, True)
    with pytest.raises(TrustRootError, match="says are revoked"):
        office.root(signer=office.old, **at_new(office))
    assert parse_trust_root(root).log.keys[0].revoked == office.revoked


def at_new(office: Rotated) -> dict[str, Any]:
    """Return what a trust root of an office has whose new key signs the checkpoint."""
    thief, office.log.signer = office.log.signer, NEXT
    note, office.log.signer = office.log.checkpoint(), thief
    return {"checkpoint_note": note}


LOG_CHANGES: dict[str, Callable[[dict[str, Any], Rotated], None]] = {
    "the announcement is left out": lambda members, _: members["logKeys"][1].update(
        announcement=None
    ),
    "a stranger's checkpoint announces it": lambda members, office: members["logKeys"][1][
        "announcement"
    ].update(
        checkpoint=sign_checkpoint(
            replace(office.log.head(), origin="lethe.example/log"), log_signer(seed=b"theirs")
        )
    ),
    "the new key announces itself": lambda members, office: members["logKeys"][1][
        "announcement"
    ].update(
        checkpoint=sign_checkpoint(
            parse_checkpoint(office.announced.checkpoint.partition("\n\n")[0] + "\n"), NEXT
        )
    ),
    "another proof": lambda members, _: members["logKeys"][1]["announcement"].update(hashes=[]),
    "from an earlier entry": lambda members, _: members["logKeys"][1].update({"from": "1"}),
    "not revoked": lambda members, _: members["logKeys"][0].update(revoked=None),
    "revoked for another reason": lambda members, _: members["logKeys"][0]["revoked"].update(
        reason="unspecified"
    ),
    "no key of the log": lambda members, _: members.update(logKeys=[]),
    "the old key alone": lambda members, _: members["logKeys"].pop(),
    "another first key": lambda members, _: members["logKeys"][0].update(
        vkey=log_signer(seed=b"theirs").verifier.vkey
    ),
    "another name": lambda members, _: members["logKeys"][0].update(
        vkey=log_signer("other.example").verifier.vkey
    ),
}


@pytest.mark.parametrize("name", LOG_CHANGES)
def test_no_key_of_a_log_is_believed_that_the_one_before_did_not_announce(name: str) -> None:
    office = Rotated()

    def run(members: dict[str, Any]) -> None:
        LOG_CHANGES[name](members, office)

    with pytest.raises(TrustRootError):
        parse_trust_root(resigned(office.root(), run, NEXT))
    assert parse_trust_root(resigned(office.root(), lambda _: None, NEXT)).log.keys


def test_keys_of_a_log_are_ed25519() -> None:
    old = log_signer()
    for change in (
        replace(of_log(ANNOUNCED, old), key=spki(5)),
        replace(of_log(ROTATED, NEXT), replaces=spki(5)),
        replace(FIRST, key=spki_of_log(old.verifier)),
        replace(of_log(ANNOUNCED, old), key=b"no key"),
    ):
        with pytest.raises(EntryError):
            service_key_leaf(change, DAY)


def test_witness_keys_and_strangers_open_no_checkpoint() -> None:
    office = Rotated()
    witness = NoteVerifier.of("lethe.example/log", NEXT.key.public_key(), COSIGNATURE)
    with pytest.raises(NoteError, match="a witness's key"):
        LogKeys.of(witness).open(office.log.checkpoint())
    other = sign_note("other\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n", NEXT)
    with pytest.raises(CheckpointError, match="another log"):
        LogKeys.of(NEXT.verifier).open(other)
