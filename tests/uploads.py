"""Uploads parsed as the API parses them, and what is then kept of them."""

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.uploads.checked import CheckedUpload
from app.uploads.spool import Spool
from app.vault.artifacts import ArtifactStore, StagedArtifact
from app.vault.master import RootSecret
from app.vault.seal import context, open_sealed


@dataclass(frozen=True)
class Parsed:
    """A checked upload; data: the .npz that its file holds sealed."""

    data: bytes
    rows: int
    records: list[str]
    clients: list[str]
    subjects: list[str]
    held_out: int


def parsed(body: bytes, parse: Callable[[Spool, StagedArtifact], CheckedUpload]) -> Parsed:
    """Return what `parse` makes of a body that was spooled, into a file that was staged."""
    with tempfile.TemporaryDirectory() as folder, closing(Spool(Path(folder))) as spool:
        store = ArtifactStore(Path(folder), RootSecret(bytes(32)))
        for start in range(0, len(body), 65_536):
            spool.write(body[start : start + 65_536])
        try:
            with store.staged("upload") as file:
                found = parse(spool, file)
        except BaseException:
            assert list(Path(folder).iterdir()) == []  # nothing is left of what is refused
            raise
        sealed = (Path(folder) / file.id).read_bytes()
        data = open_sealed(file.key, sealed, context("artifact", file.id, "upload"))
        assert file.size == len(data)
    kept = found.rows, found.records, found.clients, found.subjects, found.held_out
    return Parsed(data, *kept)
