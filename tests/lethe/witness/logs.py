"""A log in memory, what it asks of witnesses, and witnesses over loopback."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.note import NoteSigner
from lethe.log.proofs import consistency_proof
from lethe.log.tree import Peaks, leaf_hash, tree_root
from lethe.witness.home import create, load
from lethe.witness.protocol import AddCheckpoint, format_add_checkpoint
from lethe.witness.server import Server
from tests.lethe.certificates.build import log_signer


class Log:
    """Signs any size of what it holds, as an honest log, or one of its branches, does."""

    def __init__(self, leaves: int, branch: str = "", signer: NoteSigner | None = None) -> None:
        self.signer = signer or log_signer()
        self._nodes: dict[tuple[int, int], bytes] = {}
        peaks = Peaks()
        for n in range(leaves):
            leaf = f"{branch if n >= 3 else ''}{n}".encode()
            for level, index, digest in peaks.append(leaf_hash(leaf)):
                self._nodes[level, index] = digest

    def _read(self, level: int, index: int) -> bytes:
        return self._nodes[level, index]

    def head(self, size: int) -> Checkpoint:
        return Checkpoint(self.signer.name, size, tree_root(size, self._read))

    def note(self, size: int) -> str:
        return sign_checkpoint(self.head(size), self.signer)

    def prove(self, old: int, new: int) -> tuple[bytes, ...]:
        return tuple(consistency_proof(old, new, self._read)) if old else ()

    def request(self, old: int, new: int) -> bytes:
        return format_add_checkpoint(AddCheckpoint(old, self.prove(old, new), self.note(new)))


def witness_in(directory: Path, *logs: Log, name: str = "witness.example/w") -> list[str]:
    """Make a witness and return its two vkeys."""
    made = create(directory, name, [log.signer.verifier for log in logs])
    return [one.verifier.vkey for one in made]


@contextmanager
def serving(directory: Path, port: int = 0) -> Iterator[str]:
    """Serve a witness from a thread; yields its URL."""
    witness = load(directory)
    with Server(("127.0.0.1", port), witness) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
    witness.heads.close()
