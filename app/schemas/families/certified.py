"""Certified removal on the wire: tolerances, and the noise with its guarantee.

The worker's method checks its settings too. A registration that could never be certified is
refused here, where its sender gets the reason.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError

from app.schemas.base import Wire

METHOD, NOISY = "certified-newton", "noisy-finetuning"
LARGEST = 10_000  # parameters that noisy fine-tuning takes
HIDDEN = 32  # of an mlp that does not name it
# For each weight: about what the noise's 53 random bits add to any delta, so a smaller one is
# not kept (tests/workers/methods/certified/test_noise.py).
LEAST_DELTA = 1e-11
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10_000)]
Positive = Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)]
Terms = TypeVar("Terms", bound=Wire)


class CertifiedTerms(Wire):
    """`settings` of certified-newton: they hold for each certified removal of the model.

    row_norm: largest norm of a row (1, x); longer rows are refused. tolerance: largest distance
    of the published weights from the optimum of the retained set, as a share of their length.
    sigma: the noise in each weight, 0 for none; epsilon, delta and releases: its guarantee, for
    this many versions between two trainings.
    """

    row_norm: float = Field(ge=1, le=1e6, allow_inf_nan=False)
    tolerance: Share = 2.0**-7
    steps: Count = 20
    iterations: Count = 200
    sigma: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)
    epsilon: float | None = Field(default=None, gt=0, le=20, allow_inf_nan=False)
    delta: float | None = Field(default=None, ge=1e-100, lt=1, allow_inf_nan=False)
    releases: int | None = Field(default=None, ge=1, le=1 << 20)


class NoisyTerms(Wire):
    """`settings` of noisy-finetuning; the noise follows from them.

    steps of learning_rate on gradients clipped to gradient_norm, drawn towards the initial
    weights by `pull`, from offsets clipped to start_norm; recovery_rounds without noise.
    epsilon, delta and releases: the guarantee, for this many versions between two trainings.
    """

    epsilon: float = Field(gt=0, le=20, allow_inf_nan=False)
    delta: float = Field(ge=1e-100, lt=1, allow_inf_nan=False)
    releases: int = Field(ge=1, le=1 << 20)
    steps: int = Field(default=4, ge=1, le=1000)
    learning_rate: Positive = 0.1
    pull: float = Field(default=0.0, ge=0, le=1e9, allow_inf_nan=False)
    start_norm: Positive = 0.002
    gradient_norm: Positive = 0.002
    recovery_rounds: int = Field(default=4, ge=0, le=10_000)


def _parsed(kind: type[Terms], method: str, settings: Any) -> Terms:
    """Return a method's settings. Raises ValueError, naming the first field at fault."""
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"settings.{method}.{field}: {first['msg']}") from None


def _check_delta(method: str, delta: float, weights: int) -> None:
    """Raise ValueError for a delta that noise of finite precision does not keep."""
    if delta < LEAST_DELTA * weights:
        raise ValueError(
            f"settings.{method}.delta: the noise has 53 random bits, and for {weights} weights "
            f"keeps no delta below {LEAST_DELTA * weights:.3g}: choose a larger one"
        )


def check_noisy(
    settings: Mapping[str, Any],
    network: str,
    parameters: Mapping[str, int],
    features: int,
    classes: int,
) -> None:
    """Check the settings of noisy-finetuning against a network on `features` features.

    Raises ValueError, naming the field and the remedy.
    """
    if NOISY not in settings:
        raise ValueError(f"settings: {NOISY} needs its epsilon, delta and releases: name them")
    terms = _parsed(NoisyTerms, NOISY, settings[NOISY])
    if terms.pull * terms.learning_rate > 1:
        raise ValueError(f"settings.{NOISY}.pull: learning_rate * pull must be at most 1")
    if settings.get(METHOD, {}).get("sigma"):
        raise ValueError(
            f"settings: {NOISY} and the noise of {METHOD} would spend two budgets: name one"
        )
    if network not in ("logistic", "mlp"):
        raise ValueError(
            f"{NOISY} is for heads on given features, logistic or mlp, of at most {LARGEST} "
            "parameters: of a whole network the noise leaves nothing"
        )
    size = (features + 1) * classes
    if network == "mlp":
        hidden = parameters.get("hidden", HIDDEN)
        size = (features + 1) * hidden + (hidden + 1) * classes
    if size > LARGEST:
        raise ValueError(
            f"{NOISY} is for at most {LARGEST} parameters and this head has {size}: the noise "
            "would leave nothing of it; take fewer features or hidden units, or retrain"
        )
    _check_delta(NOISY, terms.delta, size)


def check_terms(
    settings: Mapping[str, Any] | None,
    network: str,
    training: Mapping[str, Any],
    features: int,
    classes: int,
) -> None:
    """Check the settings of certified-newton, None if there are none, against a training.

    Raises ValueError, naming the field and the remedy.
    """
    if settings is None:
        raise ValueError(f"settings: {METHOD} needs its row_norm at least: name it")
    terms = _parsed(CertifiedTerms, METHOD, settings)
    given = (terms.epsilon, terms.delta, terms.releases)
    if terms.sigma and None in given:
        raise ValueError(f"settings.{METHOD}: sigma needs epsilon, delta and releases too")
    if not terms.sigma and given != (None, None, None):
        raise ValueError(f"settings.{METHOD}: epsilon, delta and releases need a sigma above 0")
    local = training["local"]
    if network != "logistic" or local["loss"] != "cross-entropy":
        raise ValueError(f"{METHOD} is for the network logistic with loss cross-entropy")
    if local["optimizer"] == "adamw" or not local["weight_decay"]:
        raise ValueError(
            f"{METHOD} needs a strongly convex objective: train with weight_decay above 0 and "
            "the optimizer sgd or adam"
        )
    if terms.delta is not None:
        _check_delta(METHOD, terms.delta, (features + 1) * classes)
