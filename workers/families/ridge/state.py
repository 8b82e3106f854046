"""A ridge head's configuration, its state as artifacts, and its sealed statistics before."""

from typing import Any

from sqlmodel import Session

from app.service.context import Services
from models import Job, Model, ModelVersion
from workers.artifacts import decode_state, encode_head, encode_state
from workers.jobs.update import Encoded
from workers.judge.ridge.claim import ClaimedStatistics
from workers.methods.ridge import base, ridge_sketched
from workers.methods.ridge.base import Method, RidgeConfig, RidgeState
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    decode_statistics,
    encode_statistics,
    statistics_digest,
)


def ridge_config(model: Model) -> RidgeConfig:
    """Return the configuration that a model was registered with."""
    config: dict[str, Any] = model.config
    return RidgeConfig(
        dimension=config["dimension"],
        classes=len(model.classes),
        exponents=tuple(config["exponents"]),
        bits=config["bits"],
        penalty=float.fromhex(config["penalty"]),
    )


def method_of(model: Model, method_id: str) -> Method:
    """Return a method as configured at a model's registration.

    Raises RefusedError if there is no method of that name.
    """
    if method_id != ridge_sketched.METHOD.id:
        return base.method_named(method_id)
    options = model.config["sketch"]
    chosen = {"kind": options["kind"], "seed": options["seed"], "tolerance": budget(model)}
    return ridge_sketched.configured(
        chosen if options["rank"] == 0 else {**chosen, "rank": options["rank"]}
    )


def budget(model: Model) -> float:
    """Return how far sketches may move a head from the exact one, as a share of its norm."""
    return float.fromhex(model.config["sketch"]["budget"])


def parameters(config: RidgeConfig) -> dict[str, str]:
    """Return a certificate's parameters about a configuration."""
    return {
        "penalty": repr(config.penalty),
        "bits": str(config.bits),
        "dimension": str(config.dimension),
        "classes": str(config.classes),
    }


def encode(state: RidgeState, config: RidgeConfig) -> Encoded:
    """Return a state's artifacts: pure functions of the retained rows and configuration."""
    return Encoded(
        head=encode_head(state.head, config),
        state=encode_state(state),
        statistics=digest_of(state, config),
    )


def digest_of(state: RidgeState, config: RidgeConfig) -> str:
    """Return the digest of a state's statistics, as logged for each version."""
    return statistics_digest(state.statistics, config.exponents, config.bits, config.penalty)


def load_state(services: Services, session: Session, version: ModelVersion) -> RidgeState:
    """Return the solver's state of a version. Raises ShreddedError if it was withdrawn."""
    return decode_state(services.artifacts.get(session, version.state_id))


# 134 MB of G. For wider ones the comparison costs too much for its value, and is skipped.
WIDEST = 4096


def encode_before(statistics: RidgeStatistics, config: RidgeConfig) -> bytes | None:
    """Return the statistics before an update as they are sealed, None if too wide."""
    if config.dimension > WIDEST:
        return None
    return encode_statistics(statistics, config.exponents, config.bits, config.penalty)


def load_before(services: Services, session: Session, job: Job) -> ClaimedStatistics | None:
    """Return the statistics sealed for a job before its update, None if there are none."""
    if job.before_id is None:
        return None
    statistics, *_ = decode_statistics(services.artifacts.get(session, job.before_id))
    return ClaimedStatistics(statistics.gram, statistics.moment, statistics.rows)
