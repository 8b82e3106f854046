"""The manifests of a registration by the family of models that they name.

A family adds its wire type here, with `pinned`. API, OpenAPI and registration read this alone.
"""

from collections.abc import Mapping
from types import MappingProxyType

from app.schemas.forests import NewForest
from app.schemas.models import NewModel
from app.schemas.networks import NewNetwork
from app.schemas.recipes import NewRecipe
from app.schemas.scripts import NewScript
from app.schemas.shards import NewShards
from app.schemas.sums import NewSums
from app.schemas.vectors import NewVectors

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
