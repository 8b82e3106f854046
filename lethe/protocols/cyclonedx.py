"""A CycloneDX 1.6 declaration (ECMA-424) of an erasure, which names the certificate by digest.

It restates the certificate's claim in another format; the certificate is its evidence, and
users of the declaration should verify it. The same file gives the same bytes.
"""

from hashlib import sha256
from typing import Any
from uuid import UUID

from lethe import canonical
from lethe.certificates.statement import PREDICATE_TYPE, Statement
from lethe.errors import LetheError
from lethe.words.certificate import in_words
from lethe.words.texts import texts

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
VERSION = "1.6"
ASSESSOR, REQUIREMENT, CLAIM, EVIDENCE = "assessor", "requirement", "claim", "certificate"


class UnverifiedError(LetheError):
    """A certificate that does not verify, so no declaration is made of it."""

    slug, title, status = "certificate-unverified", "The certificate does not verify", 400


def declaration(file: bytes, statement: Statement, origin: str) -> bytes:
    """Return the declaration of a certificate file, as canonical JSON.

    statement: of the file, after verification. origin: the name of the log that holds it.
    """
    predicate = statement.predicate
    created = predicate.completed_at.isoformat().replace("+00:00", "Z")
    digest = sha256(file).hexdigest()
    passed = predicate.result == "PASS"
    sentence = in_words(predicate, texts("en"))
    reference = {
        "type": "attestation",
        "url": f"{predicate.certificate_id}.sigstore.json",
        "comment": "The certificate: verify it with `lethe certificate verify`.",
        "hashes": [_hash(digest)],
    }
    claims = [f"{CLAIM}-{number}" for number in range(1, len(statement.subject) + 1)]
    document = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": VERSION,
        "serialNumber": f"urn:uuid:{UUID(bytes=bytes.fromhex(digest)[:16], version=5)}",
        "version": 1,
        "metadata": {"timestamp": created},
        "definitions": {"standards": [_standard()]},
        "declarations": {
            "assessors": [
                {"bom-ref": ASSESSOR, "thirdParty": False, "organization": {"name": origin}}
            ],
            "attestations": [
                {
                    "summary": sentence,
                    "assessor": ASSESSOR,
                    "map": [
                        {
                            "requirement": REQUIREMENT,
                            "claims" if passed else "counterClaims": claims,
                            "conformance": {
                                "score": int(passed),
                                "rationale": predicate.guarantee.statement,
                            },
                        }
                    ],
                }
            ],
            "claims": [
                {
                    "bom-ref": claim,
                    "target": f"model-{number}",
                    "predicate": sentence,
                    "reasoning": f"{predicate.guarantee.class_}: "
                    f"{predicate.guarantee.statement}",
                    "evidence": [EVIDENCE],
                    "externalReferences": [reference],
                }
                for number, claim in enumerate(claims, 1)
            ],
            "evidence": [
                {
                    "bom-ref": EVIDENCE,
                    "description": f"Erasure certificate {predicate.certificate_id}, SHA-256 "
                    f"{digest}, logged by {origin}",
                    "created": created,
                    "data": [{"name": reference["url"], "contents": {"url": reference["url"]}}],
                }
            ],
            "targets": {
                "components": [
                    {
                        "bom-ref": f"model-{number}",
                        "type": "machine-learning-model",
                        "name": subject.name,
                        "hashes": [_hash(subject.digest)],
                    }
                    for number, subject in enumerate(statement.subject, 1)
                ]
            },
        },
    }
    return canonical.encode(document)


def _standard() -> dict[str, Any]:
    return {
        "bom-ref": "standard",
        "name": "Lethe erasure certificate",
        "version": "1",
        "requirements": [
            {
                "bom-ref": REQUIREMENT,
                "identifier": PREDICATE_TYPE,
                "title": "Erasure of records from a model",
                "text": "The records of the certificate's scope are erased from the published "
                "model, as its guarantee and its checks say.",
            }
        ],
    }


def _hash(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}
