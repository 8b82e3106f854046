"""The log's keys as the signed log has them: from which tree to which each signs."""

from app.keys.issuer import changes
from app.ledger.sequencer import Ledger
from app.reconcile.model_events import service_key_events
from lethe.log.key_changes import LOG, load_ed25519
from lethe.log.key_history import Change, replay
from lethe.log.log_keys import LogKey, LogKeys, spki_of_log
from lethe.log.note import NoteVerifier


def logged_keys(ledger: Ledger, said: list[Change] | None = None) -> LogKeys:
    """Return the log's keys, oldest first, with the trees that they sign.

    said: by these entries, and by default by all that are signed.

    Raises:
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    first = ledger.keys.verifiers[0]
    spans = replay(
        changes(service_key_events(ledger).entries) if said is None else said,
        (first.key_id.hex(), spki_of_log(first)),
        LOG,
    )
    return LogKeys(
        tuple(
            LogKey(
                NoteVerifier.of(ledger.origin, load_ed25519(span.spki)),
                span.start,
                span.revoked,
                span.reason,
            )
            for span in spans
        )
    )
