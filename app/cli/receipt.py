"""`lethe certificate receipt`: the COSE receipt of a certificate file, with this log's key."""

from pathlib import Path

import click

from app.keys.issuer import issuer_keys
from app.ledger.startup import open_ledger
from app.service.issued.receipts import of_file
from app.settings import Settings
from lethe.certificates.bundle import MAX_BUNDLE
from lethe.cli.options import FILE, OUT_FILE, write_out
from models.database.session import opened_engine


@click.command()
@click.argument("file", type=FILE)
@click.option("--out", type=OUT_FILE, help="Output file. Default: FILE with the ending .cose.")
def receipt(file: Path, out: Path | None) -> None:
    """Write the COSE receipt (RFC 9942) of a certificate FILE, for SCITT verifiers.

    Runs where the log's key is. Others download it: GET /v1/requests/ID/certificate/receipt.
    """
    with file.open("rb") as opened:
        data = opened.read(MAX_BUNDLE + 1)  # the verification refuses longer files
    settings = Settings()
    with opened_engine(settings.resolved_database_url) as engine:
        ledger = open_ledger(settings, engine, examine=True)
        made = of_file(ledger, issuer_keys(settings, ledger), data)
    path = out or Path(f"{file.name.removesuffix('.sigstore.json')}.cose")
    write_out(path, made)
