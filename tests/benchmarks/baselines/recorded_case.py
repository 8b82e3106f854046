"""Cases with the history of their training."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.baselines.history import PastRound, RecordedCase, Recorder, with_rounds
from tests.workers.methods.network.small import WHOLE, case
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.methods.network.base import UnlearningRequest
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import train

RECORDER = Recorder(InProcess(CLIENTS), ROWS)
train(NETWORK, ROWS, CONFIG, RECORDER)
HISTORY = tuple(RECORDER.history)


def with_history(
    request: UnlearningRequest = WHOLE,
    history: Sequence[PastRound] = HISTORY,
    **changes: Any,
) -> RecordedCase:
    return replace(with_rounds(case(request), history), **changes)
