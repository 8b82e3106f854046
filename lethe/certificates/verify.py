"""Verification of a certificate, offline, from two public keys or a trust root: nine steps.

The numbers are those of docs/certificate.md and of the verdict. A step trusts only what
the steps before it proved; the first that fails ends the verification, and whatever the
input holds, the answer is a verdict.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import field
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from lethe.certificates.bundle import (
    MAX_BUNDLE,
    Bundle,
    check_signature,
    issuer_named_by,
    leaf_of,
    parse_bundle,
    spki_of,
)
from lethe.certificates.errors import CertificateError
from lethe.certificates.evidence import check_evidence
from lethe.certificates.issuers import IssuerKeys
from lethe.certificates.keys import (
    ISSUER_KEY,
    LOG_KEY,
    read_issuer,
    read_log_key,
    required_ml_dsa_key,
)
from lethe.certificates.statement import Statement, parse_statement, read_escalation
from lethe.errors import LetheError
from lethe.log.log_keys import LogKeys, log_keys
from lethe.log.note import ML_DSA_44, NoteVerifier, not_verified, read_note
from lethe.log.policy import NONE, Policy
from lethe.log.proofs import check_inclusion
from lethe.log.tree import leaf_hash
from lethe.records import dataclass

Result = Literal["PASS", "FAIL"]
Outcome = Literal["authentic", "policy-not-met", "other-files", "not-authentic"]
FILES = (8, 9)  # the steps that compare the certificate with other files


class StepError(CertificateError):
    """A verification step that failed for a reason of its own."""

    slug, title = "verification-failed", "The certificate does not verify"


class UnmetPolicyError(StepError):
    """A checkpoint of the log that lacks cosignatures which the verifier requires."""

    slug, title = "witness-policy-not-met", "The certificate does not satisfy the policy"


NOT_REACHED, NOT_CHECKED = "not reached", "not checked"


@dataclass(frozen=True, slots=True)
class Step:
    """One numbered step. `detail` says what was found, or why the step could not pass.

    A step that needs a file which was not given passes unchecked, and its detail starts with
    "not checked"; a step after a failed one does not pass and its detail is "not reached".
    """

    number: int
    name: str
    passed: bool
    detail: str

    @property
    def checked(self) -> bool:
        """Whether the step was carried out."""
        return self.detail != NOT_REACHED and not self.detail.startswith(NOT_CHECKED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome: PASS only if every step passed.

    PASS means that the certificate is authentic. It may still certify a removal that failed:
    read `statement.predicate.result`. `statement` is None unless PASS, so that nothing
    unverified is ever shown. unmet: the issuer signed it and the log has it, but its checkpoint
    lacks required cosignatures.
    """

    result: Result
    steps: tuple[Step, ...]
    statement: Statement | None
    unmet: bool = False

    def __bool__(self) -> bool:
        """Raise TypeError: `if verify(...)` would accept every file, or a failed removal."""
        raise TypeError(
            "a verdict is no truth value: compare result with PASS, and then read "
            "statement.predicate.result"
        )

    @property
    def outcome(self) -> Outcome:
        """Why it is FAIL: not authentic, or genuine and not what was required of it."""
        if self.failed is None:
            return "authentic"
        if self.unmet:
            return "policy-not-met"
        return "other-files" if self.failed.number in FILES else "not-authentic"

    @property
    def failed(self) -> Step | None:
        """The step that failed."""
        return next((step for step in self.steps if not step.passed), None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form.

        {"result", "outcome", "steps": [{number, name, checked, passed, detail}]}.
        """
        steps = [
            {
                "number": step.number,
                "name": step.name,
                "checked": step.checked,
                "passed": step.passed,
                "detail": step.detail,
            }
            for step in self.steps
        ]
        return {"result": self.result, "outcome": self.outcome, "steps": steps}


def verify(
    certificate: bytes | Path,
    *,
    keys: Path | None = None,
    trust_root: bytes | Path | None = None,
    model: bytes | Path | None = None,
    evidence: bytes | Path | None = None,
) -> Verdict:
    """Verify a certificate offline with the operator's public keys, or with its trust root.

    `keys` is a directory with `log.vkey` and `issuer.pem`, as the operator publishes it; if it
    has `log-mldsa.vkey`, the log's second signature is required too. `trust_root` is the file
    that names all keys that the issuer ever had. Give exactly one. `model` and `evidence` are
    the files that the certificate should be about; without them the steps that need them say
    "not checked". Each file may be a path or its bytes.

    PASS means that the certificate is authentic. Whether the erasure passed is in
    `verdict.statement.predicate.result`.

    Raises:
        PublicKeyError: A key file does not hold the expected key.
        TrustRootError: It is not a trust root, or its log did not sign it.
        ValueError: Both or neither of keys and trust root were given.
        OSError: A file cannot be read.
    """
    if (keys is None) == (trust_root is None):
        raise ValueError("give keys or a trust root")
    if isinstance(certificate, Path):
        with certificate.open("rb") as file:
            certificate = file.read(MAX_BUNDLE + 1)  # one byte more is enough to be refused
    log: NoteVerifier | LogKeys
    issuer: EllipticCurvePublicKey | IssuerKeys
    second: NoteVerifier | None = None
    if keys is not None:
        log, issuer = read_log_key(keys / LOG_KEY), read_issuer(keys / ISSUER_KEY)
        second = required_ml_dsa_key(keys, log.name)
    else:
        data = trust_root.read_bytes() if isinstance(trust_root, Path) else trust_root
        # Imported only here: reading log entries defines classes that this path does not need.
        from lethe.certificates.trust_root import parse_trust_root

        root = parse_trust_root(data or b"")
        log, issuer = root.log, root.issuers
    return verify_certificate(
        certificate,
        log=log,
        issuer=issuer,
        model=model,
        evidence=evidence.read_bytes() if isinstance(evidence, Path) else evidence,
        log_ml_dsa=second,
    )


def verify_certificate(
    bundle: bytes,
    *,
    log: NoteVerifier | LogKeys,
    issuer: EllipticCurvePublicKey | IssuerKeys,
    issuer_keyid: str | None = None,
    model: bytes | Path | None = None,
    evidence: bytes | None = None,
    witnesses: Sequence[NoteVerifier] = (),
    threshold: int = 0,
    policy: Policy | None = None,
    log_ml_dsa: NoteVerifier | LogKeys | None = None,
) -> Verdict:
    """Verify a certificate file against the log's and the issuer's key.

    `log` and `issuer` may be all keys that they ever had, from a trust root: then the
    certificate's position in the log, proven in step 5, decides which key may have signed.
    `issuer_keyid` also pins the name of the issuer's key. `model` is the artifact that the
    certificate should be about, `evidence` its evidence file. At least `threshold` of
    `witnesses` must have signed the checkpoint, where keys of one name are one witness, or
    instead the quorum of `policy`; if it lists logs, one of these keys must have signed it too.
    Signature lines of other keys are ignored, as the note format
    demands, and step 6 names them: a change in them goes undetected.

    With `log_ml_dsa` the log must also have signed the checkpoint with this ML-DSA-44 key, or
    with one of these keys from a trust root that was valid at this tree size.

    Never raises because of the contents of `bundle`, `model` or `evidence`.

    Raises ValueError: the threshold is not between 0 and the number of witnesses, or both
    witnesses and a policy are given; OSError: the model file cannot be read.
    """
    known = len({key.name for key in witnesses})
    if not 0 <= threshold <= known:
        raise ValueError(f"{threshold} of {known} witnesses cannot be required")
    if policy is not None and witnesses:
        raise ValueError("a policy names its witnesses: give no others")
    run = _Run(
        bundle,
        log_keys(log),
        issuer,
        issuer_keyid,
        model,
        evidence,
        witnesses if policy is None else policy.keys,
        threshold,
        policy,
        None if log_ml_dsa is None else log_keys(log_ml_dsa, ML_DSA_44),
    )
    steps: list[Step] = []
    failed = unmet = False
    for number, (name, check) in enumerate(_STEPS, start=1):
        if failed:
            steps.append(Step(number, name, False, NOT_REACHED))
            continue
        try:
            steps.append(Step(number, name, True, check(run)))
        except LetheError as error:
            failed, unmet = True, isinstance(error, UnmetPolicyError)
            steps.append(Step(number, name, False, error.detail))
    if failed:
        return Verdict("FAIL", tuple(steps), None, unmet)
    return Verdict("PASS", tuple(steps), run.statement)


@dataclasses.dataclass(slots=True)
class _Run:
    """The inputs, and what the steps have proved so far."""

    bundle: bytes
    log: LogKeys
    issuer: EllipticCurvePublicKey | IssuerKeys
    issuer_keyid: str | None
    model: bytes | Path | None
    evidence: bytes | None
    witnesses: Sequence[NoteVerifier]
    threshold: int
    policy: Policy | None
    second: LogKeys | None  # the log's ML-DSA-44 keys, if one of them must have signed
    parsed: Bundle = field(init=False)
    key: EllipticCurvePublicKey = field(init=False)  # the issuer's, as the entry names it
    statement: Statement = field(init=False)

    def bundle_parses(self) -> str:
        self.parsed = parse_bundle(self.bundle)
        return f"Sigstore bundle v0.3, canonical, {len(self.bundle)} bytes"

    def leaf_matches_envelope(self) -> str:
        # Comparing the whole entry covers digest, signature and issuer key at once.
        envelope, entered = self.parsed.dsse_envelope, self.parsed.entry.canonicalized_body
        named = issuer_named_by(entered, envelope)
        if isinstance(self.issuer, IssuerKeys):
            if named is None:
                raise StepError(
                    "the log entry is not this envelope's: payload, signature or entry is "
                    "another"
                )
            self.key = self.issuer.named(named).key
        elif entered == leaf_of(envelope, self.issuer):
            self.key = self.issuer
        elif named is not None:
            raise StepError(
                f"the certificate names issuer key SHA-256 {_short(named)}, yours is "
                f"{_short(spki_of(self.issuer))}: another key file, or another operator"
            )
        else:
            raise StepError(
                "the log entry is not this envelope's under this issuer key: payload, "
                "signature, entry or issuer key is another"
            )
        return "hashedrekord 0.0.2 of this payload, signature and issuer key"

    def envelope_signature(self) -> str:
        keyid = self.parsed.keyid if self.issuer_keyid is None else self.issuer_keyid
        check_signature(self.parsed.dsse_envelope, self.key, keyid)
        return "ECDSA P-256 with SHA-256 by the issuer"

    def inclusion_proof(self) -> str:
        entry = self.parsed.entry
        proof, leaf = entry.inclusion_proof, leaf_hash(entry.canonicalized_body)
        check_inclusion(proof.log_index, proof.tree_size, leaf, proof.hashes, proof.root_hash)
        return f"entry {proof.log_index} of {proof.tree_size}"

    def checkpoint(self) -> str:
        entry = self.parsed.entry
        named = [one for one in self.log.keys if one.verifier.log_id == entry.log_id.key_id]
        if not named:
            raise StepError("the bundle names another log than the given log key")
        proof = entry.inclusion_proof
        signed, _ = LogKeys(tuple(named)).open(proof.checkpoint.envelope)
        if (signed.size, signed.root) != (proof.tree_size, proof.root_hash):
            raise StepError("the checkpoint and the inclusion proof belong to different trees")
        found = ""
        if isinstance(self.issuer, IssuerKeys):
            root = self.issuer.root
            if signed.size == self.issuer.size and root is not None and signed.root != root:
                raise StepError("the log forked: the trust root's tree of this size is another")
            found = "; " + self.issuer.check(spki_of(self.key), proof.log_index)
        if self.second is None:
            return f"Ed25519 by {self.log.name}, size {signed.size}{found}"
        both = [named[0].verifier, *self.second.verifiers]
        lines = [one.key_id for one in read_note(proof.checkpoint.envelope, both).verified]
        if len(set(lines)) != len(lines) or len(lines) < 2:
            raise StepError("the log did not sign the checkpoint once with each of both keys")
        self.second.open(proof.checkpoint.envelope)
        return f"Ed25519 and ML-DSA-44 by {self.log.name}, size {signed.size}{found}"

    def witness_policy(self) -> str:
        note = self.parsed.entry.inclusion_proof.checkpoint.envelope
        # Refuses a witness's invalid line, whether it is required or not.
        own = [*self.log.verifiers, *(self.second.verifiers if self.second else ())]
        opened = read_note(note, [*own, *self.witnesses])
        lines = [(key.name, key.key_id) for key in opened.verified]
        if len(set(lines)) != len(lines):
            raise StepError("a key signed the checkpoint twice")
        if self.policy is not None:
            known, signed = len(self.witnesses), sum(key not in own for key in opened.verified)
            if not any(map(self.policy.accepts, own)):
                raise UnmetPolicyError("the policy lists other logs than this one")
            if not any(self.policy.accepts(key) for key in opened.verified if key in own):
                raise UnmetPolicyError(
                    "no key of the log that the policy lists signed the checkpoint"
                )
            found = f"{signed} of {known} witnesses of the policy signed"
            if not self.policy.is_met({key.vkey for key in opened.verified}):
                raise UnmetPolicyError(f"{found}: its quorum is not met")
            none = self.policy.quorum == NONE
            met = ", and it requires none" if none else ": its quorum is met"
            return f"{found}{met}{not_verified(opened.unverified)}"
        # A witness may sign with several keys, and counts once.
        known = len({key.name for key in self.witnesses})
        signed = len({key.name for key in opened.verified if key not in own})
        if signed < self.threshold:
            raise UnmetPolicyError(
                f"{signed} of {known} witnesses signed, {self.threshold} are required"
            )
        found = (
            f"{signed} of {known} witnesses signed, {self.threshold} required"
            if self.threshold
            else f"none required, {signed} known witnesses signed"
        )
        return found + not_verified(opened.unverified)

    def statement_shape(self) -> str:
        self.statement = parse_statement(self.parsed.payload)
        predicate = self.statement.predicate
        read_escalation(
            predicate.method.parameters
        )  # its content must have the documented form
        if predicate.request_log_index >= self.parsed.entry.log_index:
            raise StepError("the request was logged after the certificate")
        return (
            f"erasure certificate v1: result {predicate.result}, "
            f"guarantee {predicate.guarantee.class_}"
        )

    def subject_matches(self) -> str:
        if self.model is None:
            return f"{NOT_CHECKED}: no model file given"
        digest = _digest(self.model)
        for subject in self.statement.subject:
            if subject.digest == digest:
                return f"the file is subject {subject.name}"
        if digest == self.statement.predicate.model.version_before.digest:
            raise StepError("the file is the model before the erasure")
        about = ", ".join(f"{one.name}, {one.digest}" for one in self.statement.subject)
        raise StepError(f"the file's SHA-256 is {digest}; this certificate is about {about}")

    def retained_set(self) -> str:
        if self.evidence is None:
            return f"{NOT_CHECKED}: no evidence file given"
        predicate = self.statement.predicate
        check_evidence(self.evidence, predicate)
        before, after = predicate.retained_set.before, predicate.retained_set.after
        number = predicate.scope.records
        noun = "record" if number == 1 else "records"
        return (
            f"{number} {noun} in the set of {before.count} before, "
            f"absent from the set of {after.count} after"
        )


_STEPS: tuple[tuple[str, Callable[[_Run], str]], ...] = (
    ("bundle parses", _Run.bundle_parses),
    ("leaf matches envelope", _Run.leaf_matches_envelope),
    ("envelope signature", _Run.envelope_signature),
    ("inclusion proof", _Run.inclusion_proof),
    ("checkpoint signature and origin", _Run.checkpoint),
    ("witness policy", _Run.witness_policy),
    ("statement shape", _Run.statement_shape),
    ("subject matches the model file", _Run.subject_matches),
    ("retained-set proofs", _Run.retained_set),
)
STEP_NAMES: tuple[str, ...] = tuple(name for name, _ in _STEPS)


def _short(spki: bytes) -> str:
    # As long as a fingerprint: it only tells two files apart; nothing is accepted by it.
    return f"{sha256(spki).hexdigest()[:16]}…"


def _digest(model: bytes | Path) -> str:
    if isinstance(model, bytes):
        return sha256(model).hexdigest()
    with model.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
