"""Of the two verifiers, in Python and in JavaScript: they must give the same verdict.

A difference is found as an AssertionError, a crash of the second one too. Statements, evidence
and trust roots are signed after they were changed, so that what follows the signatures is
reached. Needs Node.js, as the second verifier's tests do.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.fuzz.mutate import as_json, as_lines
from benchmarks.fuzz.target import Target, Way
from benchmarks.fuzz.targets.certificates import JSON, bundles, certified, signed, trust_root
from lethe.certificates.evidence import evidence_part
from lethe.certificates.statement import Subject, build_statement
from lethe.certificates.verify import Verdict
from lethe.errors import LetheError
from lethe.log.policy import parse_policy
from tests.lethe.certificates.build import MODEL, Office, digest_of
from tests.lethe.log.test_policy import EXAMPLE
from tests.lethe.web.second import ask, base64, both, verify_both
from tests.lethe.web.test_trust_roots import parse_both

VALUES = re.compile(r"[0-9a-f]{6,}|\d+|'[^']*'|\"[^\"]*\"|`[^`]*`")


def _way(verdict: Verdict) -> Way:
    """Return the step that failed and the words of why, without the values in it."""
    failed = verdict.failed
    return Way(
        "" if failed is None else f"{failed.number} {VALUES.sub('', failed.detail)[:80]}"
    )


def _bundle(data: bytes) -> object:
    known = certified()
    files = {"model": MODEL, "evidence": known.evidence}
    return _way(verify_both(data, log=known.log, issuer=known.issuer, **files))


def _sealed(payload: bytes, evidence: bytes) -> object:
    office = Office()
    bundle = office.seal(payload, later=1)
    known = {"log": office.log.verifier, "issuer": office.key.public_key()}
    return _way(verify_both(bundle, model=MODEL, evidence=evidence, **known))


def _statement(data: bytes) -> object:
    return _sealed(data, certified().evidence)


def _statements() -> Sequence[bytes]:
    return [_payload(certified().evidence)]


def _payload(evidence: bytes) -> bytes:
    """Return a statement that names this evidence."""
    predicate = certified().predicate
    named = replace(
        predicate,
        retained_set=replace(predicate.retained_set, removal_proof=digest_of(evidence)),
        evidence=(evidence_part(predicate.evidence[0].name, evidence),),
    )
    return build_statement([Subject("digits-head/7", digest_of(MODEL))], named)


def _evidence(data: bytes) -> object:
    return _sealed(_payload(data), data)


def _trusted(data: bytes) -> object:
    return parse_both(signed(data))


def _second_policy(data: bytes) -> None:
    ask("policy", data=base64(data), signed=[])


TARGETS = tuple(
    Target(name, read, seeds, (LetheError,), mutators, needs="node")
    for name, read, seeds, mutators in (
        ("both-certificates", _bundle, bundles, JSON),
        ("both-statements", _statement, _statements, JSON),
        ("both-evidence", _evidence, lambda: [certified().evidence], JSON),
        ("both-trust-roots", _trusted, lambda: [trust_root()], (as_json,)),
        (
            "both-policies",
            both(parse_policy, _second_policy),
            lambda: [EXAMPLE.encode()],
            (as_lines,),
        ),
    )
)
