"""The manifests of registrations by family of models.

A family adds its wire type here, with `pinned`. API, OpenAPI and registration read only this.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from app.schemas.families.forests import NewForest
from app.schemas.families.networks import NewNetwork
from app.schemas.families.recipes import NewRecipe
from app.schemas.families.scripts import NewScript
from app.schemas.families.shards import NewShards
from app.schemas.families.sums import NewSums
from app.schemas.families.vectors import NewVectors
from app.schemas.models import FamilyManifest, NewModel
from lethe.catalogue import family_of

Manifest = (
    NewModel | NewNetwork | NewRecipe | NewForest | NewScript | NewShards | NewSums | NewVectors
)
MANIFESTS: Mapping[str, type[Manifest]] = MappingProxyType(
    {
        "ridge": NewModel,
        "network": NewNetwork,
        "recipe": NewRecipe,
        "forest": NewForest,
        "shards": NewShards,
        "sums": NewSums,
        "script": NewScript,
        "vectors": NewVectors,
    }
)


def manifest_of(config: Mapping[str, Any]) -> type[FamilyManifest]:
    """Return the manifest class of a configuration; FamilyManifest for an unknown family."""
    return MANIFESTS.get(family_of(config), FamilyManifest)
