"""Held-out rows of a model: stored apart from the training rows, evaluated at every version.

They are in one artifact of a kind of its own, which no fit reads. A row is removed by writing
the others under a new key and a new salt; the log names the current file
(`app.reconcile.inputs`).
"""

import io
import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Self

from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.reconcile.inputs import HELD_OUT_EVENT, HELD_OUT_KIND, logged_digest
from app.service.context import Services
from lethe.errors import LetheError
from lethe.identity import HELD_OUT
from models import Artifact, Model

if TYPE_CHECKING:  # the API starts without it
    import numpy as np
    from numpy.typing import NDArray

SALT_BYTES = 32
_IDS = ("records", "clients", "subjects")


class HeldOutChangedError(LetheError):
    """A model's stored held-out rows are not those that the log commits to."""

    slug: ClassVar[str] = "held-out-changed"
    title: ClassVar[str] = "The held-out rows were changed"
    status: ClassVar[int] = 503


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutRows:
    """features (m, d) float64; labels (m,) class indices or numbers; ids of each row.

    file: the stored .npz of these and a salt. digest: its hex SHA-256, which is in the log.
    """

    features: "NDArray[np.float64]"
    labels: "NDArray[Any]"
    records: list[str]
    clients: list[str]
    subjects: list[str]
    file: bytes
    digest: str

    @classmethod
    def of(
        cls,
        features: "NDArray[np.float64]",
        labels: "NDArray[Any]",
        ids: Mapping[str, list[str]],
    ) -> Self:
        """Return rows under a fresh salt. ids: records, clients and subjects."""
        import numpy as np

        # In UTF-8, so that `lethe purge check` finds them.
        spelled = json.dumps(dict(ids), ensure_ascii=False).encode()
        packed = io.BytesIO()
        np.savez(
            packed,
            allow_pickle=False,
            features=features,
            labels=labels,
            ids=np.frombuffer(spelled, dtype=np.uint8),
            salt=np.frombuffer(secrets.token_bytes(SALT_BYTES), dtype=np.uint8),
        )
        return cls.read(packed.getvalue())

    @classmethod
    def read(cls, file: bytes) -> Self:
        """Return the rows of a file that `of` made."""
        import numpy as np

        with np.load(io.BytesIO(file), allow_pickle=False) as found:
            features, labels = found["features"], found["labels"]
            ids: dict[str, list[str]] = json.loads(found["ids"].tobytes())
        return cls(features, labels, **ids, file=file, digest=sha256(file).hexdigest())

    @property
    def content(self) -> tuple[object, ...]:
        """The content without the salt: equal in two files of the same rows."""
        owners = (self.records, self.clients, self.subjects)
        return (self.features.shape, self.features.tobytes(), self.labels.tobytes(), owners)

    def without(
        self, leaving: Callable[[str, str, str], bool]
    ) -> "tuple[Self | None, list[str]]":
        """Return the rows that stay, and the ids of those that leave.

        leaving: decides by (record, client, subject). The first is None if no rows stay.
        """
        import numpy as np

        owners = list(zip(self.records, self.clients, self.subjects, strict=True))
        gone = np.array([leaving(*one) for one in owners])
        left = [one[0] for one, own in zip(owners, gone, strict=True) if own]
        if gone.all():
            return None, left
        staying = [one for one, own in zip(owners, gone, strict=True) if not own]
        ids = dict(zip(_IDS, map(list, zip(*staying, strict=True)), strict=True))
        return self.of(self.features[~gone], self.labels[~gone], ids), left


def uploaded(file: BinaryIO) -> HeldOutRows | None:
    """Return the held-out rows that `app.uploads.evaluation` packed, None for none."""
    import numpy as np

    file.seek(0)
    with np.load(file, allow_pickle=False) as found:
        if HELD_OUT + "features" not in found.files:
            return None
        ids = {name: found[HELD_OUT + name].tolist() for name in _IDS}
        return HeldOutRows.of(found[HELD_OUT + "features"], found[HELD_OUT + "labels"], ids)


def stored(services: Services, session: Session, model: Model) -> HeldOutRows | None:
    """Return a model's held-out rows as the log commits to them, None if it has none.

    A file without a key counts as missing, too. Its key is destroyed only in the transaction
    that logs what comes after it, so here the table was changed, and the key may come back; or
    a restore erased what the log never had as executed, and its model is quarantined.

    Raises HeldOutChangedError: they are not stored as they were logged; LetheError: the log or
    the file cannot be read.
    """
    digest = logged_digest(services.ledger, model.ref)
    if digest is None:
        return None
    for artifact_id in _live(session, digest):
        return HeldOutRows.read(services.artifacts.get(session, artifact_id))
    raise HeldOutChangedError(
        "the model's held-out rows that the log records are not stored, or their key is "
        "missing: run `lethe log fsck`, and restore the table artifacts and the data "
        "directory from a backup; if none has them, delete the model"
    )


def replace(
    services: Services,
    tx: Transaction,
    model: Model,
    before: HeldOutRows | None,
    after: HeldOutRows | None,
) -> int:
    """Replace held-out rows and destroy the key of the old ones; return the log index.

    Raises HeldOutChangedError if the log has others than `before` by now: try again.
    """
    require(services, model, None if before is None else before.digest)
    if before is not None:
        services.artifacts.shred_all(tx.session, _live(tx.session, before.digest))
    if after is not None:
        services.artifacts.put(tx.session, HELD_OUT_KIND, after.file)
    digests = {} if after is None else {"rows": after.digest}
    return record_model_event(tx, model.ref, HELD_OUT_EVENT, digests)


def require(services: Services, model: Model, digest: str | None) -> None:
    """Raise HeldOutChangedError unless the log's held-out rows have this digest."""
    if logged_digest(services.ledger, model.ref) != digest:
        raise HeldOutChangedError("the held-out rows were changed meanwhile: try again")


def remove(
    services: Services, tx: Transaction, model: Model, records: Collection[str]
) -> tuple[list[str], int | None]:
    """Remove held-out rows by their records; return those that existed, and the log index.

    Raises HeldOutChangedError as `stored`.
    """
    before = stored(services, tx.session, model)
    if before is None:
        return [], None
    wanted = set(records)
    after, left = before.without(lambda record, client, subject: record in wanted)
    return (left, replace(services, tx, model, before, after)) if left else ([], None)


def _live(session: Session, digest: str) -> list[str]:
    query = select(Artifact.id).where(
        Artifact.kind == HELD_OUT_KIND,
        Artifact.digest == digest,
        col(Artifact.wrapped_key).is_not(None),
    )
    return list(session.exec(query))
