"""Somebody who writes the rows of silos has one silo's worker asked for another's clients."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import text

from app.service.context import open_services
from tests.e2e.harness import until
from tests.e2e.test_silos import store
from tests.redteam.live.conftest import Target
from tests.workers.training.fedavg.small import CLIENTS, LOCAL, NETWORK, ROWS
from workers.silos import keys
from workers.silos.engine import SiloEngine
from workers.training.fedavg.base import Fault
from workers.training.fedavg.rounds import make_tasks
from workers.training.networks.weights import initial_weights


def test_a_silos_worker_trains_for_no_other_silo(target: Target, tmp_path: Path) -> None:
    """Both private keys lie in one directory; only silo 1 has a worker, bert is with silo 0."""
    processes = target.processes
    processes.more = {"LETHE_SILOS": "2"}
    broker = {"silos": 2, "broker_url": processes.broker_url}
    settings = processes.settings.model_copy(update=broker)
    keys.register(settings, 0)
    services = open_services(settings)
    with (tmp_path / "silo.log").open("wb") as output:
        silo = processes.start(["worker", "--silo", "1"], output, output)
    try:
        tasks = make_tasks(NETWORK, initial_weights(NETWORK, 1), ROWS, LOCAL, round=1, seed=5)
        engine = SiloEngine(services, "live", store(services), dict.fromkeys(CLIENTS))
        with ThreadPoolExecutor(1) as pool, target.database() as database:
            running = pool.submit(engine.run, tasks, timeout=60)

            def moved() -> bool:
                with database.begin() as connection:
                    found = connection.execute(
                        text(
                            "UPDATE silo_tasks SET queue = 'silo-1' WHERE queue = 'silo-0' "
                            "AND taken_at IS NULL RETURNING id"
                        )
                    ).all()
                services.dispatcher.ask({row.id: "silo-1" for row in found}, expires=60)
                return bool(found)

            until(moved, "the row of the other silo", silo)
            answers = running.result()
    finally:
        os.kill(silo.pid, signal.SIGKILL)
        silo.wait()
        services.close()
    assert answers.faults == [Fault("bert", "client-error", "NotThisSiloError")]
    assert set(answers.updates) == {"anna", "cleo"}
