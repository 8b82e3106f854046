"""A round's message to a silo: the task, and which of the client's rows to use.

One line of canonical JSON, then the bytes of the task. The client is named in the task only.
The line names the job, the silo and the row that the message was sent in, so its SHA-256,
which the silo signs with its answer, matches no other round, client, model or job.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lethe import canonical
from lethe.errors import LetheError
from workers.training.fedavg.base import RoundTask
from workers.training.fedavg.errors import MessageError
from workers.training.fedavg.messages import decode_task

KIND = "silo-task/2"
Positions = tuple[int, ...] | None  # of a client's training rows; None: all of them


@dataclass(frozen=True, slots=True, eq=False)
class SiloMessage:
    """A task for a client of a model, and the positions of the rows that it may use.

    job_id, row: the task's job and its row id in `silo_tasks`. silo: from 0.
    """

    job_id: str
    row: str
    silo: int
    model_id: int
    positions: Positions
    task: RoundTask


def encode_message(
    job_id: str,
    row: str,
    silo: int,
    model_id: int,
    positions: Sequence[int] | None,
    task: bytes,
) -> bytes:
    """Return the message around the bytes of `workers.training.fedavg.messages.encode_task`."""
    header = {
        "job": job_id,
        "kind": KIND,
        "model": model_id,
        "positions": None if positions is None else list(positions),
        "row": row,
        "silo": silo,
    }
    return canonical.encode(header) + b"\n" + task


def decode_message(data: bytes) -> SiloMessage:
    """Return the message of `data`.

    Raises MessageError for bytes that `encode_message` would not write.
    """
    line, _, task = data.partition(b"\n")
    try:
        header = canonical.decode(line)
        job_id, row = header["job"], header["row"]
        silo, model_id, positions = (header[name] for name in ("silo", "model", "positions"))
        numbers = [silo, model_id, *(() if positions is None else positions)]
        counts = all(type(number) is int and number >= 0 for number in numbers)
        named = type(job_id) is str and type(row) is str
        written = (job_id, row, silo, model_id, positions)
        if counts and named and encode_message(*written, task) == data:
            chosen = None if positions is None else tuple(positions)
            return SiloMessage(job_id, row, silo, model_id, chosen, decode_task(task))
    except (LetheError, KeyError, TypeError):
        pass  # raised below, as for bytes that parse and differ
    raise MessageError("these bytes are no task for a silo: have the round sent again")
