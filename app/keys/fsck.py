"""fsck of the issuer's key files: they are the keys that the log names."""

from app.keys.issuer import IssuerRevokedError, signing_issuer
from app.ledger.entry_macs import KeyMissingError
from app.ledger.sequencer import Ledger
from app.ledger.startup import ISSUER_PEM
from app.reconcile.findings import FsckReport
from app.settings import Settings
from lethe.signing.keys import public_pem

STALE = (
    f"{ISSUER_PEM} is not the issuer's key of the log: run `lethe service-key rotate issuer` "
    "again"
)


def fsck_keys(settings: Settings, ledger: Ledger, report: FsckReport) -> None:
    """Report a key file that is not the log's. Raises what reading the signed log raises."""
    try:
        key, _, _ = signing_issuer(settings, ledger)
    except (KeyMissingError, IssuerRevokedError) as error:
        report.add("issuer", error.detail)
        return
    try:
        published = (settings.keys_dir / ISSUER_PEM).read_text()
    except OSError:
        published = ""
    if published != public_pem(key):
        report.add("issuer", STALE)
