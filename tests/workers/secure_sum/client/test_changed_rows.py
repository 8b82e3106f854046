"""Who can write the table `models` has no sum added by terms that nobody registered."""

import pytest
from sqlmodel import Session, select

from models import Model
from tests.installation import Installation
from tests.workers.jobs.changed_rows import changing, config_of, member, set_config
from tests.workers.secure_sum.client.federation import Masked
from tests.workers.secure_sum.client.test_failures import started, version
from tests.workers.secure_sum.client.test_masked_model import FOUR, erase_records, state
from workers.jobs import registered


@pytest.mark.parametrize("when", ["accepted", "execute.leased", "execute.computed"])
def test_no_sum_is_published_by_another_configuration(learned: Masked, when: str) -> None:
    installation: Installation = learned.installation
    request_id = erase_records(installation, learned.owned("c0")[0])
    before, kept = version(learned), config_of(installation.services)
    round_id, joining = started(learned, *FOUR)
    learned.take(joining)
    with changing(installation, when, member("penalty", value=(2.0).hex())):
        installation.drain()
    shown = learned.view(round_id)
    assert (shown["state"], shown["reason"]) == ("failed", registered.CHANGED)
    assert version(learned) == before
    with Session(installation.services.engine) as session:
        assert session.exec(select(Model)).one().state == "ready"
    set_config(installation.services, kept)
    learned.round(*FOUR, add=False)
    assert state(installation, request_id) == "certified"
    installation.check()
