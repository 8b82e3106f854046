"""What a model was registered with, as the log has it: nobody can change it there."""

from dataclasses import dataclass

from app.ledger.model_events import model_events
from app.ledger.sequencer import Ledger
from app.service.registration import digest_of, pinned_of
from models import Model


@dataclass(frozen=True, slots=True)
class Registered:
    """policy: the logged digest of the policy, empty if the model is not as registered.

    noise: the logged commitment to its noise key, likewise; config: the digests of the
    registration that is logged and of the model as it is.
    """

    unchanged: bool
    policy: str
    noise: str
    config: tuple[str, str]


def registered(ledger: Ledger, model: Model) -> Registered:
    """Compare a model's row with the last registration before its first version."""
    found: dict[str, str] = {}
    for _, leaf in model_events(ledger, model.ref):
        if leaf.event == "model.version":
            break
        if leaf.event == "model.registered":
            found = dict(leaf.digests)
    config = found.get("config", ""), digest_of(pinned_of(model))
    unchanged = config[0] == config[1]
    known = found if unchanged else {}
    return Registered(unchanged, known.get("policy", ""), known.get("noise", ""), config)
