"""The secret from which a model's certified removals draw their noise, and its commitment.

There is one for each model, committed to in the log's entry `model.registered`, before the
first row and the first request: nobody chooses among keys once it is known who is to go. It
is derived from the model's sealed secret, so it is sealed with it. Whoever has it can take
the noise off every version, which is why it is never published.
"""

import hashlib
import hmac
from typing import Any

from app.service.scope import open_tombstone_key
from app.vault.master import MasterKey
from models import Model

METHOD = "certified-newton"
DIGEST = "noise"  # its name in the entry `model.registered`
# Tags are HMACs of record ids under the same key. No id is this message: it is not UTF-8.
_MESSAGE = b"\xfflethe certified noise key 1"
# workers/judge/certified/logistic_noise.py computes the commitment by itself.
_COMMITMENT = b"lethe certified noise key 1\x00"


def has_noise(config: dict[str, Any]) -> bool:
    """Return whether a model of this configuration was registered for noise."""
    return bool(config.get("settings", {}).get(METHOD, {}).get("sigma"))


def noise_key(master: MasterKey, model: Model) -> bytes:
    """Return a model's noise key: 32 secret bytes."""
    return hmac.new(open_tombstone_key(master, model), _MESSAGE, hashlib.sha256).digest()


def commitment(master: MasterKey, model: Model) -> dict[str, str]:
    """Return the digest for the log by its name; empty for a model without noise."""
    if not has_noise(model.config):
        return {}
    return {DIGEST: hashlib.sha256(_COMMITMENT + noise_key(master, model)).hexdigest()}
