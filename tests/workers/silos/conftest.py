"""Two silos over a fresh database: anna and cleo are with silo-1, bert is with silo-0."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
import torch
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.service.context import Services, open_services
from app.settings import Settings
from models import Artifact, Model, SiloTask
from tests.doubles.silos import InlineSilos
from tests.workers.training.fedavg.small import CLIENTS
from workers.errors import RefusedError
from workers.silos import keys
from workers.silos.engine import SiloEngine
from workers.silos.message import Positions
from workers.training.fedavg.base import ClientData

JOB = "00000000-0000-4000-8000-000000000001"
ROUND_TIMEOUT = 20  # seconds of a clock that the tests move


class Clock:
    """A clock that only `sleep` moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@dataclass
class Silos:
    """The services of one process, its silos, and a record of loaded rows."""

    services: Services
    dispatcher: InlineSilos
    model_id: int
    clock: Clock = field(default_factory=Clock)
    loaded: list[tuple[str, Positions]] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)  # clients whose rows are no more

    def load(
        self,
        services: Services,
        session: Session,
        model_id: int,
        client: str,
        positions: Positions,
    ) -> ClientData:
        assert (services, model_id) == (self.services, self.model_id)
        self.loaded.append((client, positions))
        if client in self.gone:
            raise RefusedError(f"{client} has no rows")  # a text that names a person
        data = CLIENTS[client]
        return data if positions is None else data.only(positions_of(positions))

    def engine(self, selection: dict[str, Positions] | None = None) -> SiloEngine:
        chosen: dict[str, Positions] = dict.fromkeys(CLIENTS)
        return SiloEngine(
            self.services,
            JOB,
            self.model_id,
            chosen if selection is None else selection,
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def rows(self) -> list[SiloTask]:
        with self.services.reading() as session:
            return list(session.exec(select(SiloTask).order_by(col(SiloTask.id))))

    def artifacts(self) -> list[Artifact]:
        with self.services.reading() as session:
            return list(session.exec(select(Artifact)))

    def files(self) -> list[str]:
        folder = self.services.settings.data_dir / "artifacts"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def assert_clean(self) -> None:
        """Nothing of a round remains: no row, no key, no file."""
        assert not self.rows()
        assert all(artifact.wrapped_key is None for artifact in self.artifacts())
        assert not self.files()


@pytest.fixture
def silos(settings: Settings, ledger: Ledger) -> Iterator[Silos]:
    """Two silos, and a model that rows can belong to."""
    with_silos = settings.model_copy(
        update={"silos": 2, "round_timeout_seconds": ROUND_TIMEOUT}
    )
    opened = open_services(with_silos)
    with Session(opened.engine) as session:
        model = Model(
            ref="deep",
            method="puf-special",
            config={"family": "network"},
            classes=[],
            extractor={},
            tombstone_key=b"",
        )
        session.add(model)
        session.commit()
        assert model.id is not None
        model_id = model.id
    for silo in range(2):
        keys.register(with_silos, silo)
    dispatcher = InlineSilos(lambda *arguments: made.load(*arguments))
    made = Silos(replace(opened, dispatcher=dispatcher), dispatcher, model_id)
    dispatcher.services = made.services
    yield made
    opened.close()


def positions_of(positions: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(positions, dtype=torch.int64)
