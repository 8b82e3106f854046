"""Columns of a table on the wire, for recipes, scripts and their shards."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from app.schemas.models import NamedFeatures, Word

Categories = Annotated[list[Word], Field(min_length=1, max_length=10_000)]


class TableManifest(NamedFeatures):
    """The part of a manifest that describes a row.

    columns: of a row's features; features: their names, if they have some. categories: of
    features that are texts, by their names, the values in the order of the numbers 0, 1, …
    that a fit sees. weighted: whether each row has a weight.
    """

    columns: int = Field(ge=1, le=10_000)
    categories: dict[Word, Categories] = Field(default_factory=dict, max_length=1000)
    weighted: bool = False

    @model_validator(mode="after")
    def _names_columns(self) -> Self:
        self.check_features(self.columns)
        for name, values in self.categories.items():
            if name not in self.features:
                raise ValueError(f"categories: {name} is not among the features")
            if len(set(values)) != len(values):
                raise ValueError(f"categories: {name} names a value twice")
        return self

    def pinned_columns(self) -> dict[str, Any]:
        """Return the columns for the pinned configuration, without unused options."""
        more = ("features", "categories", "weighted")
        used = {name: getattr(self, name) for name in more if getattr(self, name)}
        return {"columns": self.columns, **used}
