"""A model's versions: load the current state, publish the next, withdraw the earlier."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sqlalchemy import delete
from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Transaction
from app.service.context import Services
from app.service.scope import chunks
from lethe.certificates.retained import retained_root
from models import Artifact, Model, ModelVersion, Record
from workers.artifacts import decode_state, encode_head, encode_state
from workers.jobs import subjects
from workers.jobs.draft import ShreddedArtifact, sha256_hex
from workers.jobs.lease import Lease
from workers.methods.ridge import (
    registry,
    ridge_sketched,
)
from workers.methods.ridge.base import Method, RidgeConfig, RidgeState
from workers.methods.ridge.statistics.encoding import statistics_digest

REPEATED = "model.repeated"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A state as the artifacts that a version consists of.

    contents: digests of a ridge head's rows by their names in the log (`ridge_rows`); empty
    where the rows are not here. start: of a network that was trained from them, hex SHA-256
    of its initial weights.
    """

    head: bytes
    state: bytes
    statistics: str
    contents: Mapping[str, str] = field(default_factory=dict)
    start: str | None = None

    @property
    def head_digest(self) -> str:
        """Hex SHA-256 of the head's file."""
        return sha256_hex(self.head)


def ridge_config(model: Model) -> RidgeConfig:
    """Return the configuration a model was registered with."""
    config: dict[str, Any] = model.config
    return RidgeConfig(
        dimension=config["dimension"],
        classes=len(model.classes),
        exponents=tuple(config["exponents"]),
        bits=config["bits"],
        penalty=float.fromhex(config["penalty"]),
    )


def method_of(model: Model, method_id: str) -> Method:
    """Return a method as it was configured for a model at its registration.

    Raises:
        RefusedError: There is no method of that name.
    """
    if method_id != ridge_sketched.METHOD.id:
        return registry.get(method_id)
    options = model.config["sketch"]
    chosen = {"kind": options["kind"], "seed": options["seed"], "tolerance": budget(model)}
    return ridge_sketched.configured(
        chosen if options["rank"] == 0 else {**chosen, "rank": options["rank"]}
    )


def budget(model: Model) -> float:
    """Return how far sketches may take a head from the exact one, as a share of its norm."""
    return float.fromhex(model.config["sketch"]["budget"])


def parameters(config: RidgeConfig) -> dict[str, str]:
    """Return what a certificate says of a configuration."""
    return {
        "penalty": repr(config.penalty),
        "bits": str(config.bits),
        "dimension": str(config.dimension),
        "classes": str(config.classes),
    }


def encode(
    state: RidgeState, config: RidgeConfig, contents: Mapping[str, str] = MappingProxyType({})
) -> Encoded:
    """Return a state's artifacts: pure functions of the retained rows and configuration."""
    return Encoded(
        head=encode_head(state.head, config),
        state=encode_state(state),
        statistics=statistics_digest(
            state.statistics, config.exponents, config.bits, config.penalty
        ),
        contents=contents,
    )


def current(session: Session, model: Model) -> ModelVersion | None:
    """Return a model's current version's row."""
    if model.current_version is None:
        return None
    assert model.id is not None
    return numbered(session, model.id, model.current_version)


def numbered(session: Session, model_id: int, number: int) -> ModelVersion:
    """Return the row of a model's version by its number."""
    return session.exec(
        select(ModelVersion).where(
            ModelVersion.model_id == model_id, ModelVersion.number == number
        )
    ).one()


def load_state(services: Services, session: Session, version: ModelVersion) -> RidgeState:
    """Return the solver's state of a version.

    Raises:
        ShreddedError: The version was withdrawn.
    """
    return decode_state(services.artifacts.get(session, version.state_id))


def commitments(session: Session, model_id: int) -> list[bytes]:
    """Return the sorted commitments of a model's retained records."""
    query = select(Record.commitment).where(Record.model_id == model_id)
    return sorted(bytes(value) for value in session.exec(query))


def commitments_of(session: Session, model_id: int, records: Collection[str]) -> list[bytes]:
    """Return the sorted commitments of some of a model's retained records."""
    found: list[bytes] = []
    for chunk in chunks(sorted(records)):
        query = select(Record.commitment).where(
            Record.model_id == model_id, col(Record.record).in_(chunk)
        )
        found += [bytes(value) for value in session.exec(query)]
    return sorted(found)


def remove_records(session: Session, model_id: int, records: list[str]) -> int:
    """Take records out of the training set, whoever claimed them; return how many.

    Of a client or subject that has none left the names go too.
    """
    session.flush()  # or what is expired below would lose changes that are not written
    removed = 0
    owners: set[int] = set()
    for chunk in chunks(records):
        leaving = [col(Record.model_id) == model_id, col(Record.record).in_(chunk)]
        owners.update(session.exec(select(Record.subject_id).where(*leaving).distinct()))
        removed += session.connection().execute(delete(Record).where(*leaving)).rowcount
    subjects.forget_names(session, owners)
    session.expire_all()
    return removed


@dataclass(frozen=True, slots=True)
class RetainedSet:
    """A retained set by its root and size, computed before the writer transaction."""

    root: bytes
    count: int

    @classmethod
    def of(cls, commitments: Collection[bytes]) -> "RetainedSet":
        """Return the set of these commitments, in any order."""
        return cls(retained_root(sorted(commitments)), len(commitments))


def publish(
    services: Services,
    tx: Transaction,
    model: Model,
    lease: Lease,
    encoded: Encoded,
    retained: RetainedSet,
    links: Sequence[bytes] = (),
) -> ModelVersion:
    """Make a state the model's next version, over the retained set that it was made from.

    `links` are the roots between those of the version before and `retained`, where several
    requests were executed at once: the log holds the whole chain that their certificates
    name in parts. The event is in the log before any verifier draws a seed.
    """
    assert model.id is not None
    session = tx.session
    head = services.artifacts.put(session, "head", encoded.head)
    state = services.artifacts.put(session, "state", encoded.state)
    number = (model.current_version or 0) + 1
    index = record_model_event(
        tx,
        model.ref,
        "model.version",
        {
            "head": encoded.head_digest,
            "statistics": encoded.statistics,
            **encoded.contents,  # of salted digests
            "retained": retained.root.hex(),  # of salted commitments: says nothing of a person
            **({"start": encoded.start} if encoded.start is not None else {}),
            **{f"retained-{number}": root.hex() for number, root in enumerate(links, 1)},
        },
    )
    version = ModelVersion(
        model_id=model.id,
        number=number,
        job_id=lease.job_id,
        rung=lease.rung,
        head_id=head.id,
        state_id=state.id,
        head_digest=encoded.head_digest,
        statistics_digest=encoded.statistics,
        retained_root=retained.root,
        retained_count=retained.count,
        log_index=index,
        created_at=tx.now,
    )
    session.add(version)
    model.current_version = number
    model.state = "ready"
    session.flush()
    return version


def record_repeated(tx: Transaction, model: Model, version: ModelVersion) -> None:
    """Log that the training of a version was repeated, bit for bit."""
    said = {"head": version.head_digest, "statistics": version.statistics_digest}
    record_model_event(tx, model.ref, REPEATED, said)


def withdraw_earlier(
    services: Services, tx: Transaction, model: Model, keep: ModelVersion
) -> list[ShreddedArtifact]:
    """Shred heads and states of all versions before `keep`; returns what was shredded now."""
    shredded = []
    earlier = select(ModelVersion).where(
        ModelVersion.model_id == model.id,
        col(ModelVersion.number) < keep.number,
        col(ModelVersion.withdrawn_at).is_(None),
    )
    for version in tx.session.exec(earlier).all():
        version.withdrawn_at = tx.now
        for artifact_id in (version.head_id, version.state_id):
            if (done := shred(services, tx.session, artifact_id)) is not None:
                shredded.append(done)
    return shredded


def shred(services: Services, session: Session, artifact_id: str) -> ShreddedArtifact | None:
    """Destroy an artifact's key; None if that was done before."""
    if session.get_one(Artifact, artifact_id).wrapped_key is None:
        return None
    return ShreddedArtifact(artifact_id, services.artifacts.shred(session, artifact_id))
