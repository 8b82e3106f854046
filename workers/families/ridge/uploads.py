"""Parse an upload for a ridge head: rows, quantised here, or a client's statistics."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from workers.arrays import Rows
from workers.families.ridge.blocks import MessageBlock, RowBlock, Upload, decode_upload
from workers.families.ridge.preflight import check_definite
from workers.jobs.update import Owner, ParsedUpload
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.message import Batch, check_message
from workers.secure_sum.wire import unpack_message


@dataclass(frozen=True, slots=True, eq=False)
class ParsedRidgeUpload(ParsedUpload):
    """batch: the blocks together, as the method learns them."""

    batch: Batch

    def salts(self) -> dict[str, bytes]:
        """Return the salts that lie with the rows; new ones for rows that are not sent."""
        known: dict[str, bytes] = {}
        for block in self.blocks.values():
            if isinstance(block, RowBlock):
                known |= zip(block.records, map(bytes, block.id_salts), strict=True)
        return known or ParsedUpload.salts(self)  # `super` knows no class with slots


def parse_upload(
    data: bytes, config: RidgeConfig, number: int, *, remote: bool
) -> ParsedRidgeUpload:
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
    return ParsedRidgeUpload(upload.records, _by_owner(upload, rows, number), saturated, rows)


def _of_statistics(data: bytes, config: RidgeConfig) -> ParsedRidgeUpload:
    envelope = unpack_message(data, bits=config.bits)
    check_message(envelope.message, bits=config.bits)
    if envelope.message.residual == 0:
        check_definite(envelope.message.statistics, config)
    block = MessageBlock(envelope.records, envelope.message)
    owner = envelope.client, envelope.subject
    return ParsedRidgeUpload(envelope.records, {owner: block}, 0, envelope.message)


def _by_owner(upload: Upload, rows: Rows, number: int) -> dict[Owner, RowBlock]:
    positions: dict[Owner, list[int]] = defaultdict(list)
    for position, owner in enumerate(zip(upload.clients, upload.subjects, strict=True)):
        positions[owner].append(position)
    return {
        owner: RowBlock.fresh(
            [upload.records[position] for position in own],
            Rows(rows.codes[np.array(own)], rows.labels[np.array(own)]),
            number,
        )
        for owner, own in positions.items()
    }
