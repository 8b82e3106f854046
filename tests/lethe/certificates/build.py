"""Whole certificates from a log in memory, for tests here and in other rooms.

Keys are fixed, so a failure repeats; ECDSA signatures are random as in production.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    derive_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.certificates.bundle import build_bundle, hashedrekord_leaf, sign_envelope
from lethe.certificates.evidence import (
    Removal,
    Report,
    build_evidence,
    evidence_part,
    prove_removal,
    record_commitment,
)
from lethe.certificates.retained_tree import RetainedTree
from lethe.certificates.shape import read
from lethe.certificates.statement import (
    CheckPart,
    Guarantee,
    MethodPart,
    ModelPart,
    Predicate,
    Purged,
    RetainedSet,
    Scope,
    Subject,
    VerifierPart,
    VersionPart,
    build_statement,
)
from lethe.certificates.verify import Verdict, verify_certificate
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.entries import event_leaf
from lethe.log.note import NoteSigner, NoteVerifier
from lethe.log.proofs import inclusion_proof
from lethe.log.tree import Peaks, leaf_hash, tree_root
from lethe.signing.keys import public_pem
from tests.lethe.certificates.leaves import bare

KEYID = "issuer-2026"
REQUEST_REF = "0b5bbbd2-1d3c-4c3b-8b63-9a4c8f3f8a01"
CERTIFICATE_ID = "5f8d5c0e-6a53-4d0e-b7a4-0a6f0f9f2b11"


def issuer_key(secret: int = 2026) -> EllipticCurvePrivateKey:
    """An ECDSA P-256 key that is the same in every run."""
    return derive_private_key(secret, SECP256R1())


def log_signer(name: str = "lethe.example/log", seed: bytes = b"log") -> NoteSigner:
    """An Ed25519 note key that is the same in every run."""
    return NoteSigner(name, Ed25519PrivateKey.from_private_bytes(sha256(seed).digest()))


class LocalLog:
    """An append-only log in memory, with the proofs and checkpoints of the real one."""

    def __init__(self, signer: NoteSigner | None = None) -> None:
        self.signer = signer or log_signer()
        self.leaves: list[bytes] = []
        self._peaks = Peaks()
        self._nodes: dict[tuple[int, int], bytes] = {}

    @property
    def verifier(self) -> NoteVerifier:
        return self.signer.verifier

    def append(self, data: bytes) -> int:
        for level, index, digest in self._peaks.append(leaf_hash(data)):
            self._nodes[level, index] = digest
        self.leaves.append(data)
        return len(self.leaves) - 1

    def proof(self, index: int) -> list[bytes]:
        return inclusion_proof(index, len(self.leaves), self.read)

    def head(self) -> Checkpoint:
        size = len(self.leaves)
        return Checkpoint(self.signer.name, size, tree_root(size, self.read))

    def checkpoint(self) -> str:
        return sign_checkpoint(self.head(), self.signer)

    def read(self, level: int, index: int) -> bytes:
        return self._nodes[level, index]


@dataclass(frozen=True)
class Certified:
    """A certificate with everything that it speaks of."""

    bundle: bytes
    evidence: bytes
    model: bytes
    predicate: Predicate
    log: NoteVerifier
    issuer: EllipticCurvePublicKey

    def verify(self, bundle: bytes | None = None, **options: Any) -> Verdict:
        """Verify with every file given, or another bundle in place of this one."""
        given: dict[str, Any] = {
            "log": self.log,
            "issuer": self.issuer,
            "model": self.model,
            "evidence": self.evidence,
        }
        data = self.bundle if bundle is None else bundle
        return verify_certificate(data, **given | options)

    def write(self, directory: Path) -> Path:
        """Write bundle, evidence, model and keys as `lethe demo` lays them out."""
        files = {
            f"certificates/{CERTIFICATE_ID}.sigstore.json": self.bundle,
            f"evidence/{CERTIFICATE_ID}.json": self.evidence,
            "models/after.safetensors": self.model,
            "keys/log.vkey": f"{self.log.vkey}\n".encode(),
            "keys/issuer.pem": public_pem(self.issuer).encode(),
        }
        for name, data in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(data)
        return directory / f"certificates/{CERTIFICATE_ID}.sigstore.json"


@dataclass
class Office:
    """Who issues certificates: a log that has seen requests, and the issuer's key."""

    log: LocalLog = field(default_factory=LocalLog)
    key: EllipticCurvePrivateKey = field(default_factory=issuer_key)
    keyid: str = KEYID

    def __post_init__(self) -> None:
        commitment = sha256(b"request").digest()
        for event in ("request.received", "request.queued", "request.executing"):
            self.log.append(event_leaf(event, REQUEST_REF, commitment, date(2026, 11, 21)))

    def seal(self, payload: bytes, later: int = 3) -> bytes:
        """Sign a payload, whatever it is, log it, let the log grow and return the file."""
        envelope = sign_envelope(payload, self.key, self.keyid)
        leaf = hashedrekord_leaf(envelope, self.key.public_key())
        index = self.log.append(leaf)
        for number in range(later):
            self.log.append(f"later {number}".encode())
        return build_bundle(
            envelope,
            issuer_keyid=self.keyid,
            leaf=leaf,
            index=index,
            proof=self.log.proof(index),
            checkpoint_note=self.log.checkpoint(),
            log=self.log.verifier,
        )

    def certify(self, **changes: Any) -> Certified:
        """Return a certificate; `changes` replace members of its predicate."""
        evidence, predicate = contents()
        predicate = replace(predicate, **changes)
        payload = build_statement([Subject("digits-head/7", digest_of(MODEL))], predicate)
        return Certified(
            self.seal(payload),
            evidence,
            MODEL,
            predicate,
            self.log.verifier,
            self.key.public_key(),
        )


MODEL = b"the head after the erasure"
BEFORE = b"the head before the erasure"


def digest_of(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return sha256(data).hexdigest()


def salts(count: int) -> dict[str, bytes]:
    """Record ids with the salt of each."""
    ids = [f"record-{number}" for number in range(count)]
    return {record: sha256(b"salt of " + record.encode()).digest() for record in ids}


def commitments(opened: dict[str, bytes]) -> list[bytes]:
    """The sorted commitments of a training set."""
    return sorted(record_commitment(salt, record) for record, salt in opened.items())


def contents(
    size: int = 60, erased: Sequence[str] = ("record-3", "record-41")
) -> tuple[bytes, Predicate]:
    """Return (evidence file, predicate) of an erasure from a set of `size` records."""
    known = salts(size)
    section = prove_removal(
        RetainedTree(bare(commitments(known))), {name: known[name] for name in erased}
    )
    removal = read(Removal, section)
    verifier = VerifierPart("lethe-verifier", "0.1.0", digest_of(b"verifier code"))
    checks = (
        CheckPart(
            1,
            "gram-digest",
            "Gram matrix (SHA-256)",
            digest_of(b"gram"),
            None,
            digest_of(b"gram"),
            True,
        ),
        CheckPart(
            2,
            "head-error",
            "error of the head (norm)",
            "3.1e-17",
            ("0", "4.4e-17"),
            "1e-9",
            True,
        ),
    )
    report = Report(verifier, "PASS", checks, {"rows": "58"})
    evidence = build_evidence(section, report, {"gram.after": digest_of(b"gram")})
    predicate = Predicate(
        certificate_id=CERTIFICATE_ID,
        request_ref=REQUEST_REF,
        request_log_index=0,
        request_commitment=sha256(b"request").digest(),
        completed_at=datetime(2026, 11, 21, 8, 30, tzinfo=UTC),
        supersedes=None,
        model=ModelPart(
            "digits-head", VersionPart(digest_of(BEFORE)), VersionPart(digest_of(MODEL))
        ),
        scope=Scope("sample", len(erased), removal.records_root),
        retained_set=RetainedSet(removal.before, removal.after, digest_of(evidence)),
        method=MethodPart(
            "ridge-exact",
            "1",
            {"l2": "1.0", "bits": "16"},
            digest_of(b"method code"),
            {"python": "3.11", "numpy": "2.4"},
        ),
        guarantee=Guarantee(
            "exact", "The head equals a refit on the retained rows.", {"head": "4.4e-17"}
        ),
        checks=checks,
        result="PASS",
        purged=Purged((digest_of(BEFORE),), len(erased), 1),
        evidence=(evidence_part(f"evidence/{CERTIFICATE_ID}.json", evidence),),
        verifier=verifier,
    )
    return evidence, predicate
