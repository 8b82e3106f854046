"""An address that an agent verified does not speak for another mailbox of one normalised form."""

import unicodedata

import pytest

from app.problems import OpenDsrError
from app.protocols.drp import wire as drp
from app.protocols.opendsr import wire as opendsr
from lethe.identity import digests

OTHERS = (
    "ann@stra\u00dfe.example",  # folds to strasse.example
    "ro\u00dfmann@example.org",
    "\u212aim@example.org",  # the Kelvin sign, folds to k
    "ann@\u03c3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2.example",  # the final sigma, folds to the other
    "\ufb01nn@example.org",  # a ligature, folds to fi
)
OWN = (
    "Ann@Example.org",
    " ann@example.org\u200b",
    "J\u00d6RG@example.org",
    unicodedata.normalize("NFD", "j\u00f6rg@example.org"),
    "\u212bsa@example.org",  # the sign of the unit, which is the letter in NFC
)


def verified(value: str) -> drp.Exercise:
    return drp.Exercise.model_validate(
        {"drp.version": "1.0", "exercise": "deletion", "email": value, "email_verified": True}
    )


def sent(value: str) -> opendsr.NewDsrRequest:
    identity = {"identity_type": "email", "identity_value": value, "identity_format": "raw"}
    return opendsr.NewDsrRequest.model_validate(
        {
            "regulation": "gdpr",
            "subject_request_id": "0dc1f9ab-3b5e-4d55-a3a9-5d4e2c4f1f10",
            "subject_request_type": "erasure",
            "submitted_time": "2026-11-01T00:00:00Z",
            "subject_identities": [identity],
        }
    )


@pytest.mark.parametrize("value", OTHERS)
def test_who_proves_an_address_does_not_speak_for_another(value: str) -> None:
    assert drp.people_of(verified(value)) == []
    with pytest.raises(OpenDsrError, match="xn--"):
        opendsr.people_of(sent(value), {"email": "email"})


@pytest.mark.parametrize("value", OWN)
def test_other_spellings_of_ones_own_address_are_taken(value: str) -> None:
    wanted = digests("email", value)["sha256"].hex()
    assert [one.sha256 for one in drp.people_of(verified(value))] == [wanted]
    found = opendsr.people_of(sent(value), {"email": "email"})
    assert [one.sha256 for one in found] == [wanted]
