"""The key of each silo, as it is registered and as the log has it for a model.

Whoever can write the keys directory can put another key there, and with its private half
answer in a silo's place. They may be able to sign log entries too, and drop none: what was
there before stays to be compared. Silos are numbers in it: a name could be a client's.
"""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlmodel import select

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger
from app.reconcile.model_events import model_events
from app.service.context import Services
from app.service.methods import is_network
from app.settings import Settings
from app.vault.wipe import DELETED
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import load_public_key
from models import Model

REGISTERED, CHANGED = "model.registered", "model.silos"
PREFIX = "silo-"  # of the digests' names: silo-0, silo-1


def public_path(settings: Settings, silo: int) -> Path:
    """Return where a silo's public key is registered."""
    return settings.keys_dir / f"silo-{silo}.pem"


def public_key(settings: Settings, silo: int) -> Ed25519PublicKey | None:
    """Return a silo's registered key, None if none is, or one of another kind."""
    try:
        key = load_public_key(public_path(settings, silo).read_bytes())
    except (FileNotFoundError, KeyFormatError):
        return None
    return key if isinstance(key, Ed25519PublicKey) else None


def digest_of(key: Ed25519PublicKey) -> str:
    """Return hex SHA-256 of a key's SubjectPublicKeyInfo, by which log and verdict name it."""
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def stored(settings: Settings) -> dict[int, str]:
    """Return the digest of each silo's registered key, without those that have none."""
    keys = {silo: public_key(settings, silo) for silo in range(settings.silos)}
    return {silo: digest_of(key) for silo, key in keys.items() if key is not None}


def logged(ledger: Ledger, ref: str) -> dict[int, str]:
    """Return the digest that the log has last of each silo's key for a model.

    Raises what `model_events` raises.
    """
    found = [*model_events(ledger, ref, REGISTERED), *model_events(ledger, ref, CHANGED)]
    return {
        int(name.removeprefix(PREFIX)): digest
        for _, leaf in sorted(found, key=lambda one: one[0])
        for name, digest in leaf.digests.items()
        if name.startswith(PREFIX)
    }


def entries(keys: Mapping[int, str]) -> dict[str, str]:
    """Return keys by silo as an entry of the log names them."""
    return {f"{PREFIX}{silo}": digest for silo, digest in keys.items()}


def pinned(services: Services, ref: str) -> dict[int, str]:
    """Return the keys whose signatures count for a model: those in the log.

    A silo of which the log has no key yet has its registered one logged first, once: from
    then on no file changes it.
    """
    known = logged(services.ledger, ref)
    return known | _log(
        services, ref, {k: d for k, d in stored(services.settings).items() if k not in known}
    )


def renew(services: Services, silos: Collection[int]) -> None:
    """Log the keys that some silos start with, for each network whose last is another."""
    with services.reading() as session:
        models = session.exec(select(Model).where(Model.state != DELETED)).all()
        refs = [model.ref for model in models if is_network(model.config)]
    own = {k: d for k, d in stored(services.settings).items() if k in silos}
    for ref in refs:
        known = logged(services.ledger, ref)
        _log(services, ref, {k: d for k, d in own.items() if known.get(k) != d})


def _log(services: Services, ref: str, keys: dict[int, str]) -> dict[int, str]:
    if keys:
        services.ledger.transact(lambda tx: record_model_event(tx, ref, CHANGED, entries(keys)))
    return keys
