"""Ridge regression and naive Bayes from integer sums, on the wire."""

from collections.abc import Mapping
from math import ldexp
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.schemas.base import Finite, Wire
from app.schemas.models import Name, NamedFeatures
from lethe.catalogue import SumsMethod

Exponent = Annotated[int, Field(ge=-160, le=160)]
Estimator = Literal["ridge-regressor", "ridge-classifier", "gaussian-nb", "multinomial-nb"]
LARGEST_CODE = 2**31 - 1  # steps of a number; lethe/estimators/sums/fixed_point.py
MOST_RIDGE, MOST_BAYES = 2_000, 1_000_000  # seconds of exact arithmetic at each update
# The options of each estimator.
OWN: dict[str, frozenset[str]] = {
    "ridge-regressor": frozenset({"alpha", "intercept", "exponent", "target_exponent"}),
    "ridge-classifier": frozenset({"alpha", "intercept", "exponent"}),
    "gaussian-nb": frozenset({"var_smoothing", "exponent"}),
    "multinomial-nb": frozenset({"alpha", "exponent"}),
}


class SumsOptions(Wire):
    """An estimator and its options. None may be chosen from rows that are erased later.

    alpha: the penalty of ridge, or what multinomial naive Bayes adds to each count.
    var_smoothing: the share of the largest variance that a Gaussian adds to each. intercept: of
    ridge, not penalised. exponent, target_exponent: features and numbers to predict are rounded
    to multiples of 2^exponent, at most 2^31 of them, so that sums are exact.
    """

    estimator: Estimator
    alpha: Finite = Field(default=1.0, gt=0)
    var_smoothing: Finite = Field(default=1e-9, ge=0)
    intercept: bool = True
    exponent: Exponent = -16
    target_exponent: Exponent = -16

    @model_validator(mode="after")
    def _has_its_options(self) -> Self:
        other = self.model_fields_set - OWN[self.estimator] - {"estimator"}
        if other:
            raise ValueError(f"{min(other)}: {self.estimator} has no such option")
        return self


class NewSums(NamedFeatures):
    """The "manifest" part of POST /v1/models for ridge and naive Bayes from integer sums.

    classes: names, or none of ridge-regressor, which predicts numbers. columns: of a row's
    features; features: their names. weighted: whether each row has a weight, in an array
    `weights`.
    """

    family: Literal["sums"]
    method: SumsMethod = "sums-exact"
    classes: list[Name] = Field(default_factory=list, max_length=1000)
    columns: int = Field(ge=1, le=10_000)
    weighted: bool = False
    sums: SumsOptions

    @model_validator(mode="after")
    def _classes_of_a_classifier(self) -> Self:
        self.check_features(self.columns)
        classifies = self.sums.estimator != "ridge-regressor"
        if classifies and len(self.classes) < 2:
            raise ValueError(f"classes: name at least two for {self.sums.estimator}")
        if not classifies and self.classes:
            raise ValueError("classes: leave them out, ridge-regressor predicts numbers")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("classes: name each once")
        if self.sums.estimator.startswith("ridge"):
            if self.columns + len(self.classes) > MOST_RIDGE:
                raise ValueError(
                    f"columns: at most {MOST_RIDGE:,} features and classes together; the "
                    "family ridge takes more"
                )
        elif self.columns * len(self.classes) > MOST_BAYES:
            raise ValueError(f"columns: at most {MOST_BAYES:,} features times classes")
        return self

    def pinned(self) -> dict[str, Any]:
        """Return the pinned configuration, whose digest is logged at registration."""
        options = self.sums.model_dump()
        exact = {name: options[name].hex() for name in ("alpha", "var_smoothing")}
        return self.of_rows(
            columns=self.columns,
            **self.pinned_features(),
            missing=False,
            weighted=self.weighted,
            sums={**options, **exact},
        )


def is_summed(config: Mapping[str, Any]) -> bool:
    """Return whether the rows of a configuration are summed as integers, within `bounds`."""
    return "sums" in config


def bounds(config: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return least and largest feature, and largest number to predict, of a configuration."""
    options = config["sums"]
    high, target = (
        ldexp(float(LARGEST_CODE), options[name]) for name in ("exponent", "target_exponent")
    )
    return (0.0 if options["estimator"] == "multinomial-nb" else -high), high, target
