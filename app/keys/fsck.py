"""fsck of the key files: the log, ML-DSA-44, issuer and master keys are those in the log."""

from app.hsm.errors import KeyAwayError
from app.keys.issuer import IssuerRevokedError, signing_issuer
from app.keys.log import require_logged
from app.keys.master import master_keys
from app.ledger.entry_macs import KeyMissingError
from app.ledger.sequencer import Ledger
from app.ledger.startup import ISSUER_PEM
from app.reconcile.findings import FsckReport
from app.settings import Settings
from app.vault.errors import MasterKeyError
from app.vault.master import given, source
from app.vault.root import open_root, read_roots
from lethe.signing.keys import public_pem

STALE = (
    f"{ISSUER_PEM} is not the issuer's key of the log: run `lethe service-key rotate issuer` "
    "again"
)
FINISH = "run `lethe service-key revoke master` again, or restore the newest root.sealed"
AGAIN = "run `lethe service-key rotate master` again, or restore the newest root.sealed"


def fsck_keys(settings: Settings, ledger: Ledger, report: FsckReport) -> None:
    """Report key files whose keys the log does not name. Raises as `model_events`."""
    try:
        ledger.require_named()
    except KeyMissingError as error:
        report.add("log-key", error.detail)
    try:
        require_logged(ledger)
    except KeyMissingError as error:
        report.add("log-mldsa", error.detail)
    try:
        key, _, _ = signing_issuer(settings, ledger)
    except (KeyAwayError, KeyMissingError, IssuerRevokedError) as error:
        report.add("issuer", error.detail)
        return
    try:
        published = (settings.keys_dir / ISSUER_PEM).read_text()
    except OSError:
        published = ""
    if published != public_pem(key.public_key()):
        report.add("issuer", STALE)


def fsck_master(settings: Settings, ledger: Ledger, report: FsckReport) -> None:
    """Report if the master key does not open root.sealed, or if its keys differ from the log.

    Without a master key, only the keys are compared. Raises as `model_events`.
    """
    try:
        roots = read_roots(settings.keys_dir)
    except MasterKeyError as error:
        report.add("master", error.detail)
        return
    used = master_keys(ledger).of(roots)
    listed = {one.keyid for one in roots}
    for key in used:
        if key.revoked is not None and key.keyid in listed:
            report.add("master", f"root.sealed still has the revoked key {key.keyid}: {FINISH}")
        elif key.revoked is None and key.keyid not in listed:
            report.add("master", f"root.sealed lacks the master key {key.keyid}: restore it")
    for keyid in sorted(listed - {key.keyid for key in used}):
        report.add("master", f"root.sealed has {keyid}, which the log does not: {AGAIN}")
    try:
        opened = open_root(given(settings), roots)
    except MasterKeyError:  # missing: the report says that sealed data was not checked
        return
    if opened is None:
        report.add("master", f"{source(settings)} does not open root.sealed: restore either")
