"""The log's keys by the signed log, with the range of tree sizes that each may sign."""

from app.keys.issuer import changes
from app.ledger.entry_macs import KeyMissingError
from app.ledger.log_files import KINDS, RoleFiles
from app.ledger.sequencer import Ledger
from app.reconcile.model_events import service_key_events
from lethe.log.key_changes import LOG, ML_DSA, load_ed25519, load_ml_dsa
from lethe.log.key_history import Change, replay
from lethe.log.log_keys import LogKey, LogKeys, spki_of_log
from lethe.log.note import NoteVerifier


class NoSecondKeyError(KeyMissingError):
    """The log has no ML-DSA-44 key and never named one."""

    status = 409


def logged_keys(ledger: Ledger, said: list[Change] | None = None, role: str = LOG) -> LogKeys:
    """Return the log's keys, oldest first, with the tree sizes that each may sign.

    said: the key changes to use; by default, all signed entries. role: LOG, or ML_DSA for the
    second keys.

    Raises NoSecondKeyError: the log has no key of this role; ForkedError, LogDamagedError,
    GuardError: as `model_events`.
    """
    if said is None:
        said = changes(service_key_events(ledger).entries)
    first = ("", b"")
    if not any(change.role == role for _, change in said):
        if not (known := ledger.known(role)):
            raise NoSecondKeyError(
                "this log has no ML-DSA-44 key: `lethe log ml-dsa` makes one"
            )
        first = (known[0].key_id.hex(), spki_of_log(known[0]))
    load = load_ml_dsa if role == ML_DSA else load_ed25519
    kind = KINDS[role]
    return LogKeys(
        tuple(
            LogKey(
                NoteVerifier.of(ledger.origin, load(span.spki), kind),
                span.start,
                span.revoked,
                span.reason,
            )
            for span in replay(said, first, role)
        ),
        kind,
    )


def require_logged(ledger: Ledger) -> None:
    """Check that this process signs with an ML-DSA-44 key that the log names as valid.

    Before the first rotation the log names none, and nothing is checked. The log's Ed25519 keys
    are checked when the log is opened.

    Raises KeyMissingError: the log names ML-DSA-44 keys, and no valid one signs here;
    ForkedError, LogDamagedError, GuardError: as `model_events`.
    """
    said = changes(service_key_events(ledger).entries)
    if not any(change.role == ML_DSA for _, change in said):
        return
    valid = [
        one.verifier for one in logged_keys(ledger, said, ML_DSA).keys if one.revoked is None
    ]
    signing = ledger.signing(ML_DSA)
    files = RoleFiles(ML_DSA)
    if not any(one in valid for one in signing):
        raise KeyMissingError(
            f"{files.key} is not the ML-DSA-44 key that the log has: restore the newest backup "
            "of the keys directory, or finish what was interrupted: run "
            "`lethe service-key revoke log-mldsa` again"
        )
