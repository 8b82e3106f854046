"""The engine of a job's rounds: the silos if there are any, otherwise this process."""

from collections.abc import Mapping

from app.service.context import Services
from workers import devices
from workers.silos.answer import THREADS
from workers.silos.engine import SiloEngine
from workers.silos.message import Positions
from workers.training.fedavg.base import ClientData, Engine
from workers.training.fedavg.in_process import InProcess


def engine_for(
    services: Services,
    job_id: str,
    model_id: int,
    clients: Mapping[str, ClientData],
    selection: Mapping[str, Positions],
) -> Engine:
    """Return the engine for a job's rounds; on CPUs both give the same bits.

    In this process it uses the device chosen by `devices`, like the verifier's repetition.

    `clients` are one side's rows in memory, `selection` the same as positions among each
    client's training rows (None: all). Only one of the two is used.
    """
    if services.settings.silos == 0:
        return InProcess(clients, devices.for_training(), THREADS)
    return SiloEngine(services, job_id, model_id, selection)
