"""The trust root that this installation publishes."""

from app.keys.announced import announcements
from app.keys.issuer import changes, first_key
from app.keys.log import logged_keys
from app.ledger.guard import ForkedError
from app.ledger.sequencer import Ledger
from app.reconcile.model_events import service_key_events
from app.settings import Settings
from lethe.certificates.trust_root import TrustRootError, build_trust_root
from lethe.log.key_changes import ISSUER, ML_DSA
from lethe.log.key_history import replay
from lethe.log.proofs import ProofError
from models.database.types import utcnow


def trust_root(settings: Settings, ledger: Ledger) -> bytes:
    """Return the trust root of the latest checkpoint, signed by the log's key.

    Its content comes from the leaves under the signed root. Proofs and checkpoint come from the
    database; they are verified, so nothing is signed that a reader would reject.

    Raises ForkedError: the database's proofs or checkpoint are not the signed ones;
    KeyMissingError, LogDamagedError, GuardError: as `issuer_keys`.
    """
    latest = ledger.latest()
    # Read after the checkpoint, so that all entries signed by then are included.
    entries = [one for one in service_key_events(ledger).entries if one[0] < latest.size]
    said = changes(tuple(entries))
    named = any(change.role == ISSUER for _, change in said)
    log = logged_keys(ledger, said)
    has_second = any(change.role == ML_DSA for _, change in said)
    second = logged_keys(ledger, said, ML_DSA) if has_second else None
    try:
        return build_trust_root(
            made_at=utcnow(),
            log=announcements(settings, ledger, log),
            ml_dsa=[] if second is None else announcements(settings, ledger, second),
            checkpoint_note=latest.note,
            issuers=replay(said, ("", b"") if named else first_key(settings)),
            entries=[
                (index, leaf, ledger.inclusion(index, latest.size)) for index, leaf in entries
            ],
            sign=ledger.sign_trust_root,
        )
    except (TrustRootError, ProofError) as error:
        raise ForkedError(
            "the database does not have the log that was signed: restore its newest backup, "
            f"then run `lethe log fsck` ({error.detail})"
        ) from None
