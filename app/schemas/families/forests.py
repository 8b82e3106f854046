"""Forests on the wire: everything apart from the rows that determines a forest."""

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.schemas.base import Finite, Wire
from app.schemas.families.scripts import check_names
from app.schemas.models import Name, NamedFeatures
from lethe.catalogue import ForestMethod

Edges = Annotated[list[Finite], Field(max_length=62)]


class ForestOptions(Wire):
    """Size and seed of a forest. None may be chosen from rows that are erased later.

    depth: at most. least: minimum rows of a leaf. group: features tried together at a node,
    default: the root of their number; thresholds: candidates for each. prior: rows added to
    each leaf, spread over the classes. step: numbers to predict are rounded to multiples of it,
    at most 2^20 of them, so that sums are exact.
    """

    trees: int = Field(default=100, ge=1, le=10_000)
    depth: int = Field(default=20, ge=0, le=62)
    least: int = Field(default=1, ge=1, le=1_000_000)
    group: int | None = Field(default=None, ge=1, le=32_767)
    thresholds: int = Field(default=8, ge=1, le=63)
    prior: int = Field(default=1, ge=1, le=1000)
    seed: int = Field(default=0, ge=0, le=2**53 - 1)
    step: Finite = Field(default=2**-10, gt=0)


class NewForest(NamedFeatures):
    """The "manifest" part of POST /v1/models for a forest.

    classes: names, or none of a forest that predicts numbers. edges: of each feature's bins,
    ascending; they are published with the model and stay when rows go, so they come from public
    data or from knowledge of the feature, never from rows that may be erased. bins: held-out:
    quantiles of the registered rows that an array `bins` marks; no tree learns these, and the
    edges change when one is erased. `edges` are then used for features without a value in any
    of these rows. missing: whether NaN is a value; else rows with NaN are refused. features:
    their names, in the order of `edges`.
    """

    family: Literal["forest"]
    method: ForestMethod = "forest-exact"
    classes: list[Name] = Field(default_factory=list, max_length=10_000)
    edges: list[Edges] = Field(min_length=1, max_length=10_000)
    bins: Literal["declared", "held-out"] = "declared"
    missing: bool = False
    forest: ForestOptions = ForestOptions()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_names(self.classes)
        self.check_features(len(self.edges))
        for place, own in enumerate(self.edges):
            if any(high <= low for low, high in pairwise(own)):
                raise ValueError(f"edges: those of feature {place} must ascend")
        if self.forest.group is not None and self.forest.group > len(self.edges):
            raise ValueError(
                f"forest.group: must be at most {len(self.edges)}, the number of features"
            )
        return self

    def pinned(self) -> dict[str, Any]:
        """Return the pinned configuration, whose digest is logged at registration."""
        options = self.forest.model_dump()
        group = options["group"] or max(1, round(len(self.edges) ** 0.5))
        config: dict[str, Any] = {
            "columns": len(self.edges),
            **self.pinned_features(),
            # Exactly, whatever reads them.
            "edges": [[edge.hex() for edge in own] for own in self.edges],
            "missing": self.missing,
            "forest": {**options, "group": group, "step": self.forest.step.hex()},
        }
        if self.bins != "declared":
            config["bins"] = self.bins
        return self.of_rows(**config)
