"""What is stored of a ridge head: the rows of each subject, the state, the sums before.

If the rows stay with a client, one block holds the statistics of everything it sent about a
subject: the sum of its messages.
"""

import json
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save
from sqlmodel import Session

from app.service.context import Services
from lethe.catalogue import data_of
from models import Model, ModelVersion
from workers.arrays import Rows, metadata_of
from workers.artifacts import decode_state, encode_head, encode_state
from workers.errors import RefusedError
from workers.judge.ridge.claim import ClaimedStatistics
from workers.leases import checkpoints
from workers.leases.lease import JobContext
from workers.methods.ridge import base, ridge_sketched
from workers.methods.ridge.base import Method, RidgeConfig, RidgeState
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    decode_statistics,
    encode_statistics,
    statistics_digest,
)
from workers.methods.ridge.statistics.message import (
    Batch,
    Message,
    add_messages,
    subtract_message,
)
from workers.secure_sum.wire import full, upper
from workers.updates.update import Encoded, StoredBlock

SALT = 32  # bytes


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """One subject's rows: `records[i]` is the id of row i.

    salts and id_salts (m, SALT) uint8: of the rows' digests (`ridge_rows`), and of the
    commitments to their ids, which the table `records` has too, so that a verifier who reads
    the blocks need not decrypt each name there. learned (m,) int64: the number of the version
    that learned each row.
    """

    records: list[str]
    rows: Rows
    salts: NDArray[np.uint8]
    id_salts: NDArray[np.uint8]
    learned: NDArray[np.int64]

    @classmethod
    def fresh(cls, records: list[str], rows: Rows, number: int) -> "RowBlock":
        """Return rows learned by the version `number`, newly salted."""
        drawn = np.frombuffer(secrets.token_bytes(2 * SALT * len(rows)), dtype=np.uint8)
        learned = np.full(len(rows), number, dtype=np.int64)
        salts, id_salts = drawn.reshape(2, len(rows), SALT)
        return cls(records, rows, salts, id_salts, learned)

    def without(self, erased: set[str]) -> "RowBlock | None":
        """Return the block without some records, None if nothing remains."""
        keep = np.array([record not in erased for record in self.records])
        if not keep.any():
            return None
        return self.take(keep)

    def only(self, records: set[str]) -> "RowBlock":
        """Return the rows of some records."""
        return self.take(np.array([record in records for record in self.records], dtype=bool))

    def part(self, start: int, stop: int) -> "RowBlock":
        """Return the rows from `start` to `stop`, which share memory with these."""
        own = slice(start, stop)
        rows = Rows(self.rows.codes[own], self.rows.labels[own])
        salts = self.salts[own], self.id_salts[own]
        return RowBlock(self.records[own], rows, *salts, self.learned[own])

    def take(self, mask: NDArray[np.bool_]) -> "RowBlock":
        """Return the rows where `mask` (m,) is true."""
        records = [record for record, wanted in zip(self.records, mask, strict=True) if wanted]
        rows = Rows(self.rows.codes[mask], self.rows.labels[mask])
        salts = self.salts[mask], self.id_salts[mask]
        return RowBlock(records, rows, *salts, self.learned[mask])

    def joined(self, other: "RowBlock") -> "RowBlock":
        """Return this block's rows followed by another's."""
        codes = np.concatenate([self.rows.codes, other.rows.codes])
        labels = np.concatenate([self.rows.labels, other.rows.labels])
        return RowBlock(
            self.records + other.records,
            Rows(codes, labels),
            np.concatenate([self.salts, other.salts]),
            np.concatenate([self.id_salts, other.id_salts]),
            np.concatenate([self.learned, other.learned]),
        )

    def encode(self) -> bytes:
        """Return the block as safetensors; the ids travel as JSON in its metadata."""
        arrays: dict[str, NDArray[Any]] = {
            "codes": np.ascontiguousarray(self.rows.codes),
            "labels": np.ascontiguousarray(self.rows.labels),
            "salts": np.ascontiguousarray(self.salts),
            "id_salts": np.ascontiguousarray(self.id_salts),
            "learned": np.ascontiguousarray(self.learned),
        }
        return save(arrays, {"records": json.dumps(self.records)})


@dataclass(frozen=True, slots=True, eq=False)
class MessageBlock:
    """The statistics of one subject's rows at one client, and their ids, in any order."""

    records: list[str]
    message: Message

    def joined(self, other: "MessageBlock", *, bits: int) -> "MessageBlock":
        """Return both blocks as one. Raises ExactnessError if there are too many rows."""
        whole = add_messages([self.message, other.message], bits=bits)
        return MessageBlock(self.records + other.records, whole)

    def without(
        self, erased: set[str], released: Message, *, bits: int
    ) -> "MessageBlock | None":
        """Return the block without some records, whose statistics are `released`.

        None if nothing remains. Raises InfeasibleRemovalError if no rows can have the remaining
        statistics.
        """
        kept = [record for record in self.records if record not in erased]
        if not kept:
            return None
        return MessageBlock(kept, subtract_message(self.message, released, bits=bits))

    def encode(self) -> bytes:
        """Return the block as safetensors; ids and residual travel in its metadata."""
        arrays = {
            "counts": np.ascontiguousarray(self.message.counts),
            "gram": upper(self.message.statistics.gram),
            "moment": np.ascontiguousarray(self.message.statistics.moment),
        }
        residual = self.message.residual.hex()
        return save(arrays, {"records": json.dumps(self.records), "residual": residual})


RidgeBlock = RowBlock | MessageBlock


def join(stored: RidgeBlock, fresh: StoredBlock, *, bits: int) -> RidgeBlock:
    """Return both blocks of one owner as one. A model's blocks are all of one kind.

    bits: of the model's codes.

    Raises:
        RefusedError: They are of different kinds: the vault holds a block of another model.
        ExactnessError: There are too many rows for exact sums.
    """
    if isinstance(stored, RowBlock) and isinstance(fresh, RowBlock):
        return stored.joined(fresh)
    if isinstance(stored, MessageBlock) and isinstance(fresh, MessageBlock):
        return stored.joined(fresh, bits=bits)
    raise RefusedError("rows and statistics of one owner cannot be added up")


def batch_of(block: RidgeBlock) -> Batch:
    """Return what a method learns from a block."""
    return block.rows if isinstance(block, RowBlock) else block.message


def decode_block(data: bytes) -> RidgeBlock:
    """Decode the bytes of `RowBlock.encode` or `MessageBlock.encode`."""
    arrays = load(data)
    metadata = metadata_of(data)
    records = json.loads(metadata["records"])
    if "residual" not in metadata:
        rows = Rows(arrays["codes"], arrays["labels"])
        salts = arrays["salts"], arrays["id_salts"]
        return RowBlock(records, rows, *salts, arrays["learned"])
    moment = arrays["moment"]
    statistics = RidgeStatistics(full(arrays["gram"], len(moment)), moment, len(records))
    residual = float.fromhex(metadata["residual"])
    return MessageBlock(records, Message(statistics, arrays["counts"], None, residual))


def ridge_config(model: Model) -> RidgeConfig:
    """Return the configuration that a model was registered with."""
    config: dict[str, Any] = model.config
    return RidgeConfig(
        dimension=config["dimension"],
        classes=len(model.classes),
        exponents=tuple(config["exponents"]),
        bits=config["bits"],
        penalty=float.fromhex(config["penalty"]),
        unseen=not data_of(config).rows_here,
    )


def method_of(model: Model, method_id: str) -> Method:
    """Return a method as configured at a model's registration.

    Raises RefusedError if there is no method of that name.
    """
    if method_id != ridge_sketched.METHOD.id:
        return base.method_named(method_id)
    options = model.config["sketch"]
    chosen = {"kind": options["kind"], "seed": options["seed"], "tolerance": budget(model)}
    return ridge_sketched.configured(
        chosen if options["rank"] == 0 else {**chosen, "rank": options["rank"]}
    )


def budget(model: Model) -> float:
    """Return how far sketches may move a head from the exact one, as a share of its norm."""
    return float.fromhex(model.config["sketch"]["budget"])


def parameters(config: RidgeConfig) -> dict[str, str]:
    """Return a certificate's parameters about a configuration."""
    return {
        "penalty": repr(config.penalty),
        "bits": str(config.bits),
        "dimension": str(config.dimension),
        "classes": str(config.classes),
    }


def encode(state: RidgeState, config: RidgeConfig) -> Encoded:
    """Return a state's artifacts: pure functions of the retained rows and configuration."""
    return Encoded(
        head=encode_head(state.head, config),
        state=encode_state(state),
        statistics=digest_of(state, config),
    )


def digest_of(state: RidgeState, config: RidgeConfig) -> str:
    """Return the digest of a state's statistics, as logged for each version."""
    return statistics_digest(state.statistics, config.exponents, config.bits, config.penalty)


def load_state(services: Services, session: Session, version: ModelVersion) -> RidgeState:
    """Return the solver's state of a version. Raises ShreddedError if it was withdrawn."""
    return decode_state(services.artifacts.get(session, version.state_id))


# 134 MB of G. For wider ones the comparison costs too much for its value, and is skipped.
WIDEST = 4096


def encode_before(statistics: RidgeStatistics, config: RidgeConfig) -> bytes | None:
    """Return the statistics before an update as they are sealed, None if too wide."""
    if config.dimension > WIDEST:
        return None
    return encode_statistics(statistics, config.exponents, config.bits, config.penalty)


def load_before(job: JobContext, session: Session) -> ClaimedStatistics | None:
    """Return the statistics sealed for a job before its update, None if there are none."""
    sealed = checkpoints.load_before(job, session)
    if sealed is None:
        return None
    statistics, *_ = decode_statistics(sealed)
    return ClaimedStatistics(statistics.gram, statistics.moment, statistics.rows)
