"""Rounds over real silos: `lethe worker --silo`, the file broker, rows from the vault."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import torch
from sqlmodel import Session

from app.ledger.startup import init_log
from app.schemas.families.networks import VerificationTerms
from app.service.context import Services, open_services
from app.settings import Settings
from models import Model, Subject
from models.database.session import make_engine
from tests.e2e.harness import LETHE, ORIGIN
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.families.network.data.blocks import InputBlock
from workers.silos import table
from workers.silos.engine import SiloEngine
from workers.training.fedavg.errors import RoundFailedError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import run_round, train


@pytest.fixture
def services(sqlite_url: str, tmp_path: Path) -> Iterator[Services]:
    """An installation on files for two silos."""
    (tmp_path / "data").mkdir(mode=0o700)
    settings = Settings(
        data_dir=tmp_path / "data",
        database_url=sqlite_url,
        origin=ORIGIN,
        decide="at-once",
        silos=2,
        round_timeout_seconds=60,
    )
    engine = make_engine(sqlite_url)
    init_log(settings, engine)
    engine.dispose()
    opened = open_services(settings)
    yield opened
    opened.close()


@contextmanager
def started(services: Services, output: BinaryIO) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker for both silos, and kill it in the end."""
    settings = services.settings
    process = subprocess.Popen(
        [*LETHE, "worker", "--silo", "0", "--silo", "1"],
        env={
            "LETHE_DATA_DIR": str(settings.data_dir),
            "LETHE_DATABASE_URL": settings.database_url,
            "LETHE_ORIGIN": settings.origin,
            "LETHE_SILOS": str(settings.silos),
            # The same instructions as here, or the last bits of the sums differ.
            **{
                name: os.environ[name] for name in ["ATEN_CPU_CAPABILITY"] if name in os.environ
            },
        },
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def store(services: Services) -> int:
    """Store the clients' rows as a registered model's; return its id."""
    config = {
        "family": "network",
        "data": "rows",
        "network": {"id": NETWORK.id, "parameters": NETWORK.parameters},
        "input_shape": [4],
        "training": asdict(CONFIG),
        "held_out": 0.0,
        "settings": {},
        "policy": VerificationTerms(
            attacks=["yeom"], tau="0.1", minimum_pairs=400
        ).model_dump(),
    }
    with Session(services.engine) as session:
        model = Model(
            ref="deep",
            method="puf-special",
            config=config,
            classes=["a", "b", "c"],
            extractor={},
            tombstone_key=b"",
        )
        session.add(model)
        session.flush()
        assert model.id is not None
        model_id = model.id
        for client, data in CLIENTS.items():
            subject = Subject(
                model_id=model_id,
                client=client,
                subject="",
                client_tag=client,
                subject_tag="",
            )
            session.add(subject)
            session.flush()
            names = [f"{client}-{row}" for row in range(len(data))]
            inputs, labels = data.inputs.numpy(), data.targets.numpy().astype(np.int64)
            block = InputBlock(names, inputs, labels).encode()
            services.features.store(session, subject, block, len(data))
        session.commit()
    return model_id


def test_real_silos_train_and_are_killed(services: Services, tmp_path: Path) -> None:
    log = tmp_path / "silos.log"
    # One process for both, because each takes seconds to start.
    with log.open("wb") as output, started(services, output) as process:
        model_id = store(services)
        engine = SiloEngine(services, "job", model_id, dict.fromkeys(CLIENTS))
        config = replace(CONFIG, rounds=2)
        here = train(NETWORK, ROWS, config, InProcess(CLIENTS, threads=1))
        there = train(NETWORK, ROWS, config, engine)
        assert here.records == there.records, log.read_text()
        assert all(
            torch.equal(here.weights[name], there.weights[name]) for name in here.weights
        )
        process.kill()
        process.wait()
        brief = replace(config, timeout=0.5)
        with pytest.raises(RoundFailedError, match=r"0 of 3 clients .*no-answer"):
            run_round(NETWORK, there.state, ROWS, brief, engine, 3)
    assert not table.rows_of(services, "job")
    assert not list((services.settings.data_dir / "artifacts").iterdir())
    assert not any(client in log.read_text() for client in CLIENTS)
