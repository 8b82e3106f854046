"""The stored rows of a model by the shards that they belong to."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from sqlmodel import Session, select

from app.vault.master import RootSecret, open_tombstone_key
from models import Model, Subject
from workers.errors import RefusedError
from workers.families.recipe.rows import TableBlock, all_digests, digest_of_rows, table
from workers.training.recipes.fit import FitRows
from workers.training.shards.container import shard_of

# Tags of erased records are HMACs of their ids under the same key. This is not UTF-8, so it
# equals no id.
_SHARDS = b"\xfflethe shard key 1"


@dataclass(frozen=True, slots=True, eq=False)
class ShardRows:
    """One shard's rows, in fitting order. digests: salted, by record."""

    table: FitRows
    digests: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """Hex SHA-256 over the sorted digests."""
        return digest_of_rows(self.digests.values())


def shard_key(root_secret: RootSecret, model: Model) -> bytes:
    """Return the key of a model's shard assignment: 32 secret bytes, sealed with its others."""
    return hmac.new(open_tombstone_key(root_secret, model), _SHARDS, hashlib.sha256).digest()


def subject_names(session: Session, model_id: int) -> dict[int, str | None]:
    """Return the names of a model's subjects by their ids, None of one without records."""
    query = select(Subject.id, Subject.subject).where(Subject.model_id == model_id)
    return {subject: name for subject, name in session.exec(query) if subject is not None}


def owned(
    blocks: Mapping[int, TableBlock], names: Mapping[int, str | None]
) -> Iterator[tuple[str, TableBlock]]:
    """Yield each stored block with its subject's name. Raises RefusedError for one without."""
    for subject, block in blocks.items():
        name = names.get(subject)
        if name is None:
            raise RefusedError("stored rows are of a subject without a name: restore a backup")
        yield name, block


def sharded(
    model: Model,
    key: bytes,
    blocks: Iterable[tuple[str, TableBlock]],
    salts: Mapping[str, bytes],
) -> list[ShardRows]:
    """Return the rows of each shard. blocks: with the names of their subjects.

    All rows of a subject are in one shard, whichever client sent them; or, if the model is
    registered so, each record is assigned on its own.
    """
    shards, by = model.config["shards"]["count"], model.config["shards"]["by"]
    parts: list[list[TableBlock]] = [[] for _ in range(shards)]
    for name, block in blocks:
        if by == "subject":
            parts[shard_of(key, f"subject\0{name}", shards)].append(block)
            continue
        places = np.array([shard_of(key, f"record\0{one}", shards) for one in block.records])
        for place in np.unique(places):
            parts[place].append(block.only(places == place))
    return [ShardRows(table(own, salts, model), all_digests(own, salts)) for own in parts]
