"""Check 1 of models that are files: what is stored is what was published."""

import re

from workers.judge.base import Check, Judgement

NUMBER, NAME = 1, "model-file"
THRESHOLD = "the recomputed SHA-256 is the published one"
SHA256 = re.compile(r"[0-9a-f]{64}")


def check_model_file(published: str, recomputed: str, *, finite: bool = True) -> Judgement:
    """Judge two hex digests of a model file. finite: no NaN or infinity in it."""
    problem = None
    if not SHA256.fullmatch(published) or not SHA256.fullmatch(recomputed):
        problem = "a digest is not SHA-256 in lower-case hex"
    elif published != recomputed:
        problem = "the stored file is not the published one"
    elif finite is not True:
        problem = "the file holds NaN or infinity"
    value = problem or f"sha256 {recomputed}"
    return Judgement(Check(NUMBER, NAME, value, None, THRESHOLD, problem is None))
