"""Digests that were claimed, against those recomputed."""

from collections.abc import Mapping
from functools import partial

from workers.judge.base import Check, Judgement
from workers.judge.guard import guarded
from workers.judge.model_file import SHA256

PAIRS = {
    "registration": "the model is registered as the log was told before its first version",
    "rows-before": "the rows stored and those that went are those of the version before",
    "rows-after": "the rows of the published version are those stored",
    "model-before": "the model that was tested before is the one published before",
}


def check_digests(kind: tuple[int, str, str], claimed: str, found: str) -> Judgement:
    """Judge two hex SHA-256 digests, of which one was claimed and one recomputed."""
    number, name, threshold = kind
    if not SHA256.fullmatch(claimed) or not SHA256.fullmatch(found):
        value, passed = "a digest is not SHA-256 in lower-case hex", False
    else:
        passed = claimed == found
        value = f"sha256 {found}" if passed else "the digest claimed is not the one found"
    return Judgement(Check(number, name, value, None, threshold, passed))


def check_pairs(pairs: Mapping[str, tuple[str, str]]) -> list[Judgement]:
    """Judge pairs of digests (claimed, recomputed) by their names in PAIRS."""
    found = []
    for name, pair in pairs.items():
        kind = (0, name, PAIRS[name])  # numbered with the others
        found.append(guarded(*kind, partial(_check_pair, kind, pair)))
    return found


def _check_pair(kind: tuple[int, str, str], pair: tuple[str, str]) -> Judgement:
    claimed, recomputed = pair
    return check_digests(kind, claimed, recomputed)
