"""`lethe case verify-receipt`: the receipt of the intake page, offline."""

import hmac
from pathlib import Path

import click

from lethe.cli.options import FILE, as_json, print_failed, print_json, print_rows

MAX_RECEIPT = 1 << 20  # bytes


@click.command("verify-receipt")
@click.argument("file", type=FILE)
@click.option("--log-key", type=FILE, required=True, help="The log's verifier key (vkey).")
@click.option(
    "--identity", metavar="KIND=VALUE", help="Check that the receipt is about this person."
)
@as_json
def verify_receipt(file: Path, log_key: Path, identity: str | None, as_json: bool) -> None:
    """Verify the receipt that a person saved on the intake page, offline.

    Exits with 0 if it verifies, 1 if it does not, 2 if a file cannot be used.
    """
    from lethe.certificates.intake_receipt import check_receipt, person_digest, record_document
    from lethe.certificates.keys import read_log_key
    from lethe.errors import LetheError
    from lethe.signing.keys import fingerprint, load_public_key

    verifier = read_log_key(log_key)
    try:
        with file.open("rb") as opened:
            receipt = check_receipt(opened.read(MAX_RECEIPT + 1), verifier)
        record = receipt.record
        if identity is not None:
            kind, _, value = identity.partition("=")
            named = person_digest(receipt.salt, kind, value)
            if not hmac.compare_digest(named, record.statement.person):
                print_failed("the receipt is about another person", as_json)
    except LetheError as error:
        print_failed(error.detail, as_json)
    if as_json:
        entry = {"log_index": receipt.entry.log_index, "tree_size": receipt.entry.tree_size}
        said = {"record": record_document(record), "entry": entry}
        print_json({"result": "PASS", "person": identity is not None, **said})
        return
    click.echo(
        "PASS  the log that its key signed holds the entry, which commits to this record"
    )
    if identity is not None:
        click.echo("      it is about this person")
    key = "none"
    if record.signed is not None:
        key = f"{fingerprint(load_public_key(record.signed.key.encode()))}, its signature holds"
    print_rows(
        ("case", record.case),
        ("received", record.received_at.isoformat()),
        ("due", record.due_at.isoformat()),
        ("regulation", record.statement.regulation),
        ("proven by", record.proven),
        ("key", key),
        ("service", record.statement.service),
        ("log entry", f"{receipt.entry.log_index} of {receipt.entry.tree_size}"),
    )
