"""Trust policies: the specification's example, each rule broken, quorums of groups."""

from itertools import combinations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from lethe.log.cosigner import Cosigner
from lethe.log.note import NoteSigner
from lethe.log.policy import MAX_POLICY, PolicyError, parse_policy


def key(seed: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)


def witness(number: int) -> str:
    return Cosigner(f"w{number}.example", key(number)).verifier.vkey


LOG = NoteSigner("log.example", key(100)).verifier.vkey
X1, X2, X3, Y1, Y2, Y3 = (witness(number) for number in range(1, 7))

# "Example policy" of the specification.
EXAMPLE = f"""
log {LOG}

witness X1 {X1}
witness X2 {X2}
witness X3 {X3}
group X-witnesses 2 X1 X2 X3

witness Y1 {Y1}
witness Y2 {Y2} https://y2.example/
witness Y3 {Y3}
group Y-witnesses any Y1 Y2 Y3

group X-and-Y all X-witnesses Y-witnesses
quorum X-and-Y
"""

REFUSED: dict[str, tuple[str, str]] = {
    "no quorum": (f"witness A {X1}\n", "no quorum line: add 'quorum NAME'"),
    "two quorums": ("quorum none\nquorum none\n", "line 2 .*second quorum"),
    "quorum before its witness": (f"quorum A\nwitness A {X1}\n", "line 1 .*no line before"),
    "unknown member": ("group G any A\nquorum G\n", "no line before"),
    "none as a member": (f"witness A {X1}\ngroup G any none\nquorum G\n", "no line before"),
    "none as a name": (f"witness none {X1}\nquorum none\n", "taken"),
    "a name twice": (f"witness A {X1}\nwitness A {X2}\nquorum A\n", "line 2 .*taken"),
    "a group named as a witness": (f"witness A {X1}\ngroup A any A\nquorum A\n", "taken"),
    "a key twice": (f"witness A {X1}\nwitness B {X1}\nquorum A\n", "same public key"),
    "a key twice under two names": (
        f"witness A {X1}\nwitness B {Cosigner('other.example', key(1)).verifier.vkey}\nquorum A\n",
        "same public key",
    ),
    "a log twice": (f"log {LOG}\nlog {LOG}\nquorum none\n", "same public key"),
    "a member twice": (f"witness A {X1}\ngroup G 1 A A\nquorum G\n", "twice"),
    "a member of two groups": (
        f"witness A {X1}\nwitness B {X2}\ngroup G any A B\ngroup H all A G\nquorum H\n",
        "twice",
    ),
    "k of none": (f"witness A {X1}\ngroup G 0 A\nquorum G\n", "from 1"),
    "k above n": (f"witness A {X1}\ngroup G 2 A\nquorum G\n", "from 1"),
    "k with a zero in front": (f"witness A {X1}\ngroup G 01 A\nquorum G\n", "from 1"),
    "k in words": (f"witness A {X1}\ngroup G most A\nquorum G\n", "from 1"),
    "a group of nobody": ("group G any\nquorum G\n", "not one of"),
    "another word": ("witnesses A\nquorum none\n", "not one of"),
    "a log's key as a witness": (f"witness A {LOG}\nquorum A\n", "0x04"),
    "a witness's key as a log": (f"log {X1}\nquorum none\n", "0x01"),
    "no key": ("witness A key\nquorum A\n", "verifier key"),
    "a control character": ("quorum none\r\n", "control"),
    "DEL": ("quorum none\x7f\n", "control"),
    "no last newline": ("quorum none", "newline"),
    "too large": ("#" * MAX_POLICY + "\nquorum none\n", "at most"),
    "too many": ("".join(f"witness {n} {X1}\n" for n in range(2)) + "quorum none\n", "same"),
}


def met(text: str, *signed: int) -> bool:
    """Whether the quorum signed, if the witnesses of these numbers did, counted from 0."""
    policy = parse_policy(text.encode("utf-8", "surrogateescape"))
    return policy.is_met({policy.keys[number].vkey for number in signed})


def test_the_specifications_example() -> None:
    policy = parse_policy(EXAMPLE.encode())
    assert [log.key.vkey for log in policy.logs] == [LOG]
    assert policy.accepts(NoteSigner("log.example", key(100)).verifier)
    assert not policy.accepts(NoteSigner("log.example", key(101)).verifier)
    assert [one.name for one in policy.witnesses] == ["X1", "X2", "X3", "Y1", "Y2", "Y3"]
    assert policy.witnesses[4].url == "https://y2.example/"
    for number in range(7):
        for signed in combinations(range(6), number):
            x, y = sum(one < 3 for one in signed), sum(one >= 3 for one in signed)
            assert met(EXAMPLE, *signed) == (x >= 2 and y >= 1), signed


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_policy_is_refused_with_its_reason(name: str) -> None:
    text, why = REFUSED[name]
    with pytest.raises(PolicyError, match=why):
        parse_policy(text.encode())


def test_none_needs_nobody_and_accepts_any_log() -> None:
    assert met("quorum none\n")
    assert parse_policy(b"quorum none\n").accepts(NoteSigner("any.example", key(9)).verifier)


def test_spaces_tabs_and_comments_and_no_other_space() -> None:
    assert met(f" \t# {X1}\n\n\twitness \t A {X1}\t \n  quorum A \n", 0)
    with pytest.raises(PolicyError, match="not one of"):
        parse_policy("quorum\u00a0none\n".encode())  # a no-break space is part of the word


def test_names_are_octets() -> None:
    # K and the Kelvin sign are two names, and so are octets that are no UTF-8.
    text = f"witness K {X1}\nwitness \u212a {X2}\nwitness \udcff {X3}\nquorum \udcff\n"
    assert met(text, 2)
    assert not met(text, 0, 1)
    with pytest.raises(PolicyError, match="UTF-8"):
        parse_policy(b"witness A \xff" + X1.encode() + b"\nquorum A\n")


def test_a_witness_of_ml_dsa_44() -> None:
    vkey = Cosigner("pq.example", MLDSA44PrivateKey.generate()).verifier.vkey
    assert met(f"witness A {vkey}\nwitness B {X1}\ngroup G all A B\nquorum G\n", 0, 1)
