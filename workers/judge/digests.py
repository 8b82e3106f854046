"""Claimed digests compared with recomputed ones."""

import re
from collections.abc import Mapping
from functools import partial

from lethe.catalogue import CHECKS, CheckSpec
from workers.judge.base import Judgement
from workers.judge.checks import guarded, judged

SHA256 = re.compile(r"[0-9a-f]{64}")
MODEL_FILE = CHECKS["model-file"]


def check_digests(spec: CheckSpec, claimed: str, found: str) -> Judgement:
    """Judge two hex SHA-256 digests, one claimed and one recomputed."""
    if not SHA256.fullmatch(claimed) or not SHA256.fullmatch(found):
        return judged(spec, "a digest is not SHA-256 in lower-case hex", passed=False)
    if claimed != found:
        return judged(spec, "the digest claimed is not the one found", passed=False)
    return judged(spec, f"sha256 {found}", passed=True)


def check_pairs(pairs: Mapping[str, tuple[str, str]]) -> list[Judgement]:
    """Judge pairs of digests (claimed, recomputed) by the names of their checks."""
    return [
        guarded(CHECKS[name], partial(_check_pair, CHECKS[name], pair))
        for name, pair in pairs.items()
    ]


def _check_pair(spec: CheckSpec, pair: tuple[str, str]) -> Judgement:
    claimed, recomputed = pair
    return check_digests(spec, claimed, recomputed)


def check_model_file(published: str, recomputed: str, *, finite: bool = True) -> Judgement:
    """Judge two hex digests of a model file. finite: it has no NaN or infinity.

    A claim that cannot be evaluated is a failed check: nothing is raised.
    """

    def run() -> Judgement:
        judgement = check_digests(MODEL_FILE, published, recomputed)
        if judgement.check.passed and finite is not True:
            return judged(MODEL_FILE, "the file holds NaN or infinity", passed=False)
        return judgement

    return guarded(MODEL_FILE, run)
