"""A contribution as a method learns it: rows, quantised here, or a client's statistics."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from workers.arrays import Rows
from workers.families.ridge.blocks import AnyBlock, Block, MessageBlock, Upload, decode_upload
from workers.jobs.preflight import check_definite
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.message import Batch, check_message
from workers.secure_sum.wire import unpack_message

Owner = tuple[str, str]  # client, subject


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """batch: what a ridge head learns. blocks: the same, as it is stored, by owner.

    A network learns from the blocks. saturated: codes that the quantiser clipped.
    """

    batch: Batch | None
    records: list[str]
    blocks: Mapping[Owner, AnyBlock]
    saturated: int


def read_lesson(data: bytes, config: RidgeConfig, number: int, *, remote: bool) -> Lesson:
    """Return what an upload teaches a model; `remote` if its rows stay with its clients.

    number: of the version that learns it.

    Raises:
        RefusedError: The rows or statistics are not usable, or no rows have such statistics.
    """
    if remote:
        return _of_statistics(data, config)
    upload = decode_upload(data)
    codes, saturated = config.quantiser.quantise(upload.features)
    rows = Rows(codes, upload.labels)
    return Lesson(rows, upload.records, _by_owner(upload, rows, number), saturated)


def _of_statistics(data: bytes, config: RidgeConfig) -> Lesson:
    envelope = unpack_message(data, bits=config.bits)
    check_message(envelope.message, bits=config.bits)
    if envelope.message.residual == 0:
        check_definite(envelope.message.statistics, config)
    block = MessageBlock(envelope.records, envelope.message)
    owner = envelope.client, envelope.subject
    return Lesson(envelope.message, envelope.records, {owner: block}, saturated=0)


def _by_owner(upload: Upload, rows: Rows, number: int) -> dict[Owner, Block]:
    positions: dict[Owner, list[int]] = defaultdict(list)
    for position, owner in enumerate(zip(upload.clients, upload.subjects, strict=True)):
        positions[owner].append(position)
    return {
        owner: Block.fresh(
            [upload.records[position] for position in own],
            Rows(rows.codes[np.array(own)], rows.labels[np.array(own)]),
            number,
        )
        for owner, own in positions.items()
    }
