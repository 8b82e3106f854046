"""Certified removal on the wire: the tolerance, and the noise with what it is to hide.

The worker's method checks its settings too. A registration that could never be certified is
refused here, where its sender gets the reason.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from app.schemas.base import Wire

METHOD = "certified-newton"
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10_000)]


class CertifiedTerms(Wire):
    """`settings` of certified-newton: they hold for each certified removal of the model.

    row_norm: no row (1, x) is longer, or it is refused. tolerance: largest distance of
    the published weights from the optimum of the retained set, as a share of their length.
    sigma: the noise in each weight, 0 for none; epsilon, delta and releases: its guarantee, for
    so many versions from one training to the next.
    """

    row_norm: float = Field(ge=1, le=1e6, allow_inf_nan=False)
    tolerance: Share = 2.0**-7
    steps: Count = 20
    iterations: Count = 200
    sigma: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)
    epsilon: float | None = Field(default=None, gt=0, le=20, allow_inf_nan=False)
    delta: float | None = Field(default=None, ge=1e-100, lt=1, allow_inf_nan=False)
    releases: int | None = Field(default=None, ge=1, le=1 << 20)


def check_terms(
    settings: Mapping[str, Any] | None, network: str, training: Mapping[str, Any]
) -> None:
    """Check the settings of certified-newton, None if there are none, beside a training.

    Raises ValueError, naming the field and the remedy.
    """
    if settings is None:
        raise ValueError(f"settings: {METHOD} needs its row_norm at least: name it")
    try:
        terms = CertifiedTerms.model_validate(settings)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"settings.{METHOD}.{field}: {first['msg']}") from None
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
