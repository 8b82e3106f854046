"""The key of each silo, as registered in the keys directory and as logged for a model.

Write access to the keys directory is enough to register another key and answer in a silo's
place. An attacker may be able to sign log entries too, but cannot remove any: earlier keys stay
there for comparison. The log names silos by numbers, because a name could be a client's.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlmodel import Session, select

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.reconcile.model_events import model_events, model_refs
from app.schemas.families.manifests import manifest_of
from app.service.context import Services
from app.settings import Settings
from app.vault.wipe import DELETED
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import load_private_key, load_public_key
from models import Model
from models.database.session import reading

REGISTERED, CHANGED = "model.registered", "model.silos"
PREFIX = "silo-"  # of the digests' names: silo-0, silo-1
PREVIOUS = "previous-silo-"  # the previous key, while its signatures are accepted too


def public_path(settings: Settings, silo: int) -> Path:
    """Return the path of a silo's registered public key."""
    return settings.keys_dir / f"silo-{silo}.pem"


def previous_path(settings: Settings, silo: int) -> Path:
    """Return the path of the previous public key, present during a rotation of a silo's key."""
    return settings.keys_dir / f"silo-{silo}.previous.pem"


def private_path(settings: Settings, silo: int) -> Path:
    """Return the path of a silo's private key."""
    return Path(settings.silo_key_dir or settings.keys_dir) / f"silo-{silo}.key"


def next_path(settings: Settings, silo: int) -> Path:
    """Return the path of the new private key until a rotation ends."""
    return private_path(settings, silo).with_suffix(".next.key")


def read_private(path: Path) -> Ed25519PrivateKey | None:
    """Return the private key in a file, None if there is none, or one of another kind."""
    try:
        key = load_private_key(path.read_bytes())
    except (FileNotFoundError, KeyFormatError):
        return None
    return key if isinstance(key, Ed25519PrivateKey) else None


def public_key(settings: Settings, silo: int) -> Ed25519PublicKey | None:
    """Return a silo's registered key, None if none is, or one of another kind."""
    return read_public(public_path(settings, silo))


def read_public(path: Path) -> Ed25519PublicKey | None:
    """Return the public key in a file, None if there is none, or one of another kind."""
    try:
        key = load_public_key(path.read_bytes())
    except (FileNotFoundError, KeyFormatError):
        return None
    return key if isinstance(key, Ed25519PublicKey) else None


def digest_of(key: Ed25519PublicKey) -> str:
    """Return hex SHA-256 of a key's SubjectPublicKeyInfo, its name in log and verdict."""
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def stored(settings: Settings) -> dict[int, str]:
    """Return the digests of registered keys by silo."""
    keys = {silo: public_key(settings, silo) for silo in range(settings.silos)}
    return {silo: digest_of(key) for silo, key in keys.items() if key is not None}


def logged(ledger: Ledger, ref: str) -> dict[int, str]:
    """Return the last logged digest of each silo's key for a model.

    Raises what `model_events` raises.
    """
    return {silo: digest for _, silo, digest, _ in _history(ledger, ref)}


def previous(ledger: Ledger, ref: str) -> dict[int, str]:
    """Return the digest of each silo's previous key, while it is accepted too for a model.

    Raises what `model_events` raises.
    """
    last = {silo: before for _, silo, _, before in _history(ledger, ref)}
    return {silo: before for silo, before in last.items() if before is not None}


def revoked(ledger: Ledger) -> set[tuple[int, str]]:
    """Return the silos and digests of keys that were replaced for some model.

    Restoring a key's file does not make it valid again. Raises what `model_events` raises.
    """
    return {(one.silo, one.digest) for one in spans(ledger) if one.revoked is not None}


@dataclass
class SiloSpan:
    """The life of a silo's key by the log's entries, over all models.

    start: the first entry that names it. end: the last entry that replaces it by another key;
    None while it is the silo's key for every model that had it. revoked: the last entry that no
    longer names it; None while its signatures are accepted for every model that had it.
    """

    silo: int
    digest: str
    start: int
    end: int | None = None
    revoked: int | None = None


def spans(ledger: Ledger) -> list[SiloSpan]:
    """Return the keys of all silos, by silo and entry. Raises what `model_events` raises."""
    found: dict[tuple[int, str], SiloSpan] = {}
    for ref in model_refs(ledger):
        counting: dict[int, tuple[str, ...]] = {}  # by silo: its key, and the previous one
        for index, silo, digest, before in _history(ledger, ref):
            now = (digest,) if before is None else (digest, before)
            for one in now:
                span = found.setdefault((silo, one), SiloSpan(silo, one, index))
                span.start = min(span.start, index)
            for place, one in enumerate(counting.get(silo, ())):
                span = found[silo, one]
                if place == 0 and one != digest:
                    span.end = max(span.end or 0, index)
                if one not in now:
                    span.revoked = max(span.revoked or 0, index)
            counting[silo] = now
    return sorted(found.values(), key=lambda one: (one.silo, one.start, one.digest))


def _history(ledger: Ledger, ref: str) -> list[tuple[int, int, str, str | None]]:
    """Return (index, silo, digest of its key, of the previous key) in the log's order."""
    found = [*model_events(ledger, ref, REGISTERED), *model_events(ledger, ref, CHANGED)]
    return [
        (index, silo, digest, leaf.digests.get(f"{PREVIOUS}{silo}"))
        for index, leaf in sorted(found, key=lambda one: one[0])
        for name, digest in leaf.digests.items()
        if name.startswith(PREFIX) and (silo := int(name.removeprefix(PREFIX))) >= 0
    ]


def entries(keys: Mapping[int, str], before: Mapping[int, str] | None = None) -> dict[str, str]:
    """Return keys by silo as the digests of a log entry.

    before: the previous keys, by silo, that are accepted too.
    """
    named = {f"{PREFIX}{silo}": digest for silo, digest in keys.items()}
    return named | {f"{PREVIOUS}{silo}": one for silo, one in (before or {}).items()}


def registered(settings: Settings, ledger: Ledger) -> dict[str, str]:
    """Return the keys of all silos as the digests of a new model's log entry.

    Keys that were replaced before are left out, so that nobody can bring one back.
    """
    known, keys = spans(ledger), stored(settings)
    gone = {(one.silo, one.digest) for one in known if one.revoked is not None}
    found = {silo: digest for silo, digest in keys.items() if (silo, digest) not in gone}
    before = {silo: read_public(previous_path(settings, silo)) for silo in found}
    digests = {silo: digest_of(key) for silo, key in before.items() if key is not None}
    # The previous key is accepted only if its rotation is logged: its file may be planted.
    counting = {(one.silo, one.digest) for one in known if one.revoked is None}
    return entries(
        found, {silo: one for silo, one in digests.items() if (silo, one) in counting}
    )


def pinned(services: Services, ref: str) -> dict[int, str]:
    """Return the keys whose signatures are accepted for a model: those in the log.

    The registered key of a silo without a logged one is logged first, once: from then on no
    file changes it.
    """
    _log(services, ref, partial(_unpinned, services, ref))
    return logged(services.ledger, ref)


def _unpinned(services: Services, ref: str) -> dict[int, str]:
    known = logged(services.ledger, ref)
    own = {k: d for k, d in stored(services.settings).items() if k not in known}
    return _without_revoked(services, own)


def accepted(services: Services, ref: str) -> dict[int, tuple[str, ...]]:
    """Return all keys whose signatures are accepted for a model, previous ones included.

    A previous key that was revoked for some model is accepted for none.
    """
    own = pinned(services, ref)
    before = set(previous(services.ledger, ref).items())
    before -= revoked(services.ledger) if before else set()
    return {
        silo: (digest, *(one for place, one in before if place == silo))
        for silo, digest in own.items()
    }


def renew(services: Services, silos: Collection[int]) -> None:
    """Log the keys that some silos start with, for each network with another last logged key.

    A key that was replaced before is not logged again.
    """
    for ref in networks(services.ledger):
        _log(services, ref, partial(_unlike, services, silos, ref))


def _unlike(services: Services, silos: Collection[int], ref: str) -> dict[int, str]:
    known = logged(services.ledger, ref)
    before = previous(services.ledger, ref)  # during a rotation
    own = {k: d for k, d in stored(services.settings).items() if k in silos}
    wrong = {k: d for k, d in own.items() if d not in (known.get(k), before.get(k))}
    return _without_revoked(services, wrong)


def _without_revoked(services: Services, keys: dict[int, str]) -> dict[int, str]:
    gone = revoked(services.ledger) if keys else set()
    return {k: d for k, d in keys.items() if (k, d) not in gone}


def networks(ledger: Ledger) -> list[str]:
    """Return the models that silos train."""
    with Session(reading(ledger.engine)) as session:
        models = session.exec(select(Model).where(Model.state != DELETED)).all()
        return [one.ref for one in models if manifest_of(one.config).trained_by_silos]


def _log(services: Services, ref: str, missing: Callable[[], dict[int, str]]) -> None:
    """Log the keys of a model that the log lacks, if any.

    missing: returns them. It is called again under the log's lock: a key that is rotated and
    revoked meanwhile must not be named again, as the last one.
    """

    def effect(tx: Transaction) -> None:
        if keys := missing():
            record_model_event(tx, ref, CHANGED, entries(keys))

    if missing():
        services.ledger.transact(effect)
