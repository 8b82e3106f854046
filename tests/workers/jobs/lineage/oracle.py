"""The expected model after any history: a fit of the retained rows by other means."""

import hashlib
from typing import Any

import numpy as np

from tests.installation import Installation
from tests.small import MODEL, manifest
from workers.arrays import Rows
from workers.artifacts import encode_head
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.statistics.gram import statistics_digest
from workers.methods.ridge.statistics.quantiser import Quantiser


def config() -> RidgeConfig:
    """Return the configuration that `manifest()` registers."""
    wanted = manifest()
    return RidgeConfig(
        len(wanted["exponents"]),
        len(wanted["classes"]),
        tuple(wanted["exponents"]),
        wanted["bits"],
        wanted["penalty"],
    )


def refit(arrays: dict[str, Any], kept: list[int]) -> tuple[bytes, str]:
    """Return head file and statistics digest of a fit of some rows, from scratch."""
    fixed = config()
    codes, _ = Quantiser(fixed.exponents, fixed.bits).quantise(arrays["features"][kept])
    labels = np.asarray(arrays["labels"])[kept].astype(np.int64)
    state = METHOD.refit(fixed, [Rows(codes, labels)]).state
    digest = statistics_digest(state.statistics, fixed.exponents, fixed.bits, fixed.penalty)
    return encode_head(state.head, fixed), digest


def refit_head(arrays: dict[str, Any], kept: list[int]) -> bytes:
    """Return only the head's file."""
    return refit(arrays, kept)[0]


def current_head(installation: Installation) -> bytes:
    """Download the head of the current version."""
    path = f"/v1/models/{MODEL}/versions"
    last = installation.caller.operator("GET", path).json()["items"][-1]
    return bytes(installation.caller.operator("GET", last["artifact"]).content)


def current_statistics(installation: Installation) -> str:
    """Return the digest of the current version's statistics."""
    path = f"/v1/models/{MODEL}/versions"
    last = installation.caller.operator("GET", path).json()["items"][-1]
    assert last["head"] == hashlib.sha256(current_head(installation)).hexdigest()
    return str(last["statistics"])
