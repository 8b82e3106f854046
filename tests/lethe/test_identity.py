"""Identities: one spelling for each person, digests that other lists match, and no values."""

import hashlib
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.identity import (
    ALGORITHMS,
    MAX_LENGTH,
    WIDTH,
    Identity,
    IdentityError,
    digests,
    normalise,
    pack,
    parse,
    unpack,
)

KINDS = st.sampled_from(["email", "phone", "customer", "cookie-id"])
TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=60)


@given(KINDS, TEXTS)
@settings(deadline=None)
def test_a_normalised_value_is_normal(kind: str, value: str) -> None:
    once = normalise(kind, value)
    assert normalise(kind, once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert once == once.strip()


@given(KINDS, TEXTS, st.booleans())
@settings(deadline=None)
def test_spellings_of_one_value_are_one(kind: str, value: str, composed: bool) -> None:
    spelt = " \t" + unicodedata.normalize("NFC" if composed else "NFD", value) + "\u00a0\n"
    assert normalise(kind, spelt) == normalise(kind, value)


@given(TEXTS)
@settings(deadline=None)
def test_case_never_counts_in_an_address(value: str) -> None:
    assert normalise("email", unicodedata.normalize("NFD", value).casefold()) == normalise(
        "email", value
    )


@pytest.mark.parametrize(
    ("kind", "value", "normal"),
    [
        ("email", " Jane.Doe@Example.ORG\n", "jane.doe@example.org"),
        ("email", "JOSE\u0301@x.org", "jos\u00e9@x.org"),
        ("phone", "+49 (30) 12-34.56/7", "+4930" + "1234567"),
        ("phone", "0049 30 1234567", "+49301234567"),
        ("phone", "030 1234567", "0301234567"),
        ("phone", "\uff0b\uff14\uff19 30\u30001234567", "+49301234567"),
        ("phone", "\u0660\u0663\u0660 1234567", "0301234567"),
        ("email", "jane\ufe0f@x\u034f.org\u3164", "jane@x.org"),
        ("customer", " kd 00 17 ", "kd0017"),
        ("customer", "KD0017", "kd0017"),
        ("Xs", "", None),
        ("cookie-id", " AbC ", "AbC"),
    ],
)
def test_rules_of_kinds(kind: str, value: str, normal: str | None) -> None:
    if normal is None:
        with pytest.raises(IdentityError, match="a-z"):
            normalise(kind, value)
    else:
        assert normalise(kind, value) == normal


def test_digests_are_those_of_others_lists() -> None:
    found = parse("email= Jane@Example.org ")
    assert found.kind == "email"
    value = b"jane@example.org"
    assert found.digests == {
        "sha256": hashlib.sha256(value).digest(),
        "sha1": hashlib.sha1(value, usedforsecurity=False).digest(),
        "md5": hashlib.md5(value, usedforsecurity=False).digest(),
    }
    for name, digest in found.digests.items():
        listed = parse(f"email:{name}={digest.hex().upper()}")
        assert listed.digests == {name: digest}
    assert "jane" not in repr(found)
    assert found.digests["sha256"].hex() not in repr(found)


@given(st.sets(st.sampled_from(list(ALGORITHMS))))
@settings(deadline=None)
def test_packed_digests_come_back(names: set[str]) -> None:
    whole = digests("email", "jane@example.org")
    some = {name: whole[name] for name in names}
    assert len(pack(some)) == WIDTH
    assert unpack(pack(some)) == some


@pytest.mark.parametrize(
    "text",
    [
        "jane@example.org",
        "email=",
        "email= \u00a0",
        "Email=jane@example.org",
        "=jane@example.org",
        "email:crc32=00000000",
        "email:sha256=" + "0" * 63,
        "email:sha256=" + "g" * 64,
        "email:=jane@example.org",
        "email=jane\x00@example.org",
        "email=jane\ud800@example.org",
        "email=" + "j" * (MAX_LENGTH + 1),
    ],
)
def test_what_is_no_identity_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(IdentityError) as refused:
        parse(text)
    assert "jane" not in refused.value.detail
    assert isinstance(Identity("email", {}), Identity)
