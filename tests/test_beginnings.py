"""A test that begins with an original writes into a copy of it, and another sees nothing."""

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from models import Model


@pytest.mark.parametrize("_", range(2))
def test_each_test_has_its_own_copy(
    settings: Settings, engine: Engine, ledger: Ledger, fitted: PrivateKey, _: int
) -> None:
    assert fsck(ledger).ok
    with Session(engine) as session:
        assert [model.state for model in session.exec(select(Model))] == ["ready"]
    left = settings.data_dir / "left-behind"
    assert not left.exists()
    left.touch()
    with engine.begin() as connection:
        count = text("SELECT count(*) FROM bearer_tokens WHERE name = 'left-behind'")
        assert connection.execute(count).scalar() == 0
        connection.execute(
            text(
                "INSERT INTO bearer_tokens VALUES ('d', 'operator', 'left-behind', CURRENT_TIMESTAMP, NULL, 'm')"
            )
        )
