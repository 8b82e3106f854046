"""`lethe certificate`: verify a certificate offline, read it, download it.

Scripts run `verify` once for each certificate, so each command imports only what it uses: most
of its time is Python's start-up, and an HTTP client alone would double it.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click

from lethe import canonical
from lethe.cli.commands import Commands
from lethe.cli.options import (
    FILE,
    FOLDER,
    OUT_FILE,
    escaped,
    plain,
    service_url,
    write_out,
)
from lethe.cli.trusted import key_file, trust_root_option, trusted
from lethe.errors import LetheError

if TYPE_CHECKING:
    from lethe.certificates.verify import Verdict
    from lethe.log.log_keys import LogKeys
    from lethe.log.note import NoteVerifier
    from lethe.words.texts import Language

TIMEOUT_S = 30.0
# Not PASS: a certificate uses that word for the erasure.
HEADINGS = {
    "authentic": "AUTHENTIC",
    "policy-not-met": "POLICY NOT MET",
    "other-files": "NOT AUTHENTIC with these files",
    "not-authentic": "NOT AUTHENTIC",
}


class DownloadError(LetheError):
    """A certificate that could not be fetched; nothing was written."""

    slug, title, status = "download-failed", "The certificate could not be downloaded", 502


@click.group(cls=Commands, entry_points="lethe.certificate.commands")
def certificate() -> None:
    """Verify, read, download and recheck erasure certificates."""


@certificate.command()
@click.argument("file", type=FILE)
@click.option("--keys", type=FOLDER, help="A directory with log.vkey and issuer.pem.")
@click.option("--log-key", type=FILE, help="The log's verifier key (vkey).")
@click.option("--issuer-key", type=FILE, help="The issuer's public key (PEM, P-256).")
@click.option("--issuer-keyid", help="Required keyid of the issuer.")
@trust_root_option
@click.option("--model", type=FILE, help="The published model file.")
@click.option("--evidence", type=FILE, help="The certificate's evidence file.")
@click.option("--witness", type=FILE, multiple=True, help="A witness's vkey; repeatable.")
@click.option(
    "--threshold",
    type=click.IntRange(min=0),
    help="Minimum number of differently named witnesses that signed. Default: all.",
)
@click.option(
    "--log-mldsa-key", type=FILE, help="The log's ML-DSA-44 key; its signature is required too."
)
@click.option("--policy", type=FILE, help="A witness policy: its quorum must have signed.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verify(
    file: Path,
    keys: Path | None,
    log_key: Path | None,
    issuer_key: Path | None,
    issuer_keyid: str | None,
    trust_root: Path | None,
    model: Path | None,
    evidence: Path | None,
    witness: tuple[Path, ...],
    threshold: int | None,
    log_mldsa_key: Path | None,
    policy: Path | None,
    as_json: bool,
) -> None:
    """Verify a certificate file offline, in nine numbered steps.

    Give --trust-root, or --keys, or --log-key and --issuer-key. If the directory of --keys has
    log-mldsa.vkey, that key's signature is required too. Exits with 0 if it passes, 1 if
    it does not or is an authentic certificate of a removal that failed, 2 if the keys or files
    cannot be used.
    """
    from lethe.certificates.bundle import MAX_BUNDLE
    from lethe.certificates.keys import (
        read_ml_dsa_key,
        read_witness_key,
        required_ml_dsa_key,
    )
    from lethe.certificates.verify import verify_certificate
    from lethe.log.policy import parse_policy

    if policy is not None and (witness or threshold is not None):
        raise click.UsageError("--policy names witnesses and quorum: leave out the others")
    log, issuer, root = trusted(keys, trust_root, log_key, issuer_key, log_mldsa_key)
    second: NoteVerifier | LogKeys | None = None
    if log_mldsa_key is not None:
        second = read_ml_dsa_key(log_mldsa_key, log.name)
        if root is not None and root.ml_dsa is not None:
            second = root.ml_dsa
    elif keys is not None:
        second = required_ml_dsa_key(keys, log.name)
    witnesses = [read_witness_key(path) for path in witness]
    known = len({key.name for key in witnesses})
    required = known if threshold is None else threshold
    if required > known:
        raise click.UsageError("--threshold is above the number of --witness names")
    with file.open("rb") as opened:
        bundle = opened.read(MAX_BUNDLE + 1)  # one byte more is enough to be refused
    verdict = verify_certificate(
        bundle,
        log=log,
        issuer=issuer,
        issuer_keyid=issuer_keyid,
        model=model,
        evidence=None if evidence is None else evidence.read_bytes(),
        witnesses=witnesses,
        threshold=required,
        policy=None if policy is None else parse_policy(policy.read_bytes()),
        log_ml_dsa=second,
    )
    if as_json:
        click.echo(json.dumps(verdict.to_json()))
    else:
        if root is not None:
            made = f"{root.made_at:%Y-%m-%d %H:%M:%SZ}"
            size = root.issuers.size
            click.echo(
                f"trust root of {plain(root.log.name)}: its first {size} entries, made {made}"
            )
        _print_verdict(file.name, verdict)
    if verdict.result != "PASS":
        sys.exit(1)
    if verdict.statement is None or verdict.statement.predicate.result != "PASS":
        click.echo("authentic, but its result is not PASS", err=True)
        sys.exit(1)


@certificate.command()
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print the statement as it was signed.")
def show(file: Path, as_json: bool) -> None:
    """Print a certificate file without verifying it."""
    from lethe.cli.certificate_file import read_certificate
    from lethe.cli.text.certificate import print_statement

    bundle, statement = read_certificate(file)
    if as_json:
        # A file or pipe gets the signed bytes, which RFC 8785 leaves with U+009B.
        shown = escaped(bundle.payload.decode()) if sys.stdout.isatty() else bundle.payload
        click.echo(shown)
        return
    click.echo("NOT VERIFIED: this is what the file says; see lethe certificate verify.\n")
    print_statement(statement)
    click.echo(f"issuer      {plain(bundle.keyid)}")
    click.echo(f"log entry   {bundle.entry.log_index}")


@certificate.command()
@click.option("--trust-root", is_flag=True, help="Print the schema of trust roots instead.")
def schema(trust_root: bool) -> None:
    """Print the JSON schema of the statement."""
    from lethe.certificates.statement import statement_schema
    from lethe.certificates.trust_root import trust_root_schema

    found = trust_root_schema() if trust_root else statement_schema()
    click.echo(json.dumps(found, indent=2))


@certificate.command()
def catalogue() -> None:
    """Print what certificates and the log name: methods, checks, events."""
    from lethe.cli.text.catalogue import catalogue_lines

    for line in catalogue_lines():
        click.echo(line)


@certificate.command()
@click.option("--keys", type=FOLDER, help="A directory with log.vkey and issuer.pem.")
@click.option(
    "--out", type=OUT_FILE, default=Path("verify.html"), show_default=True, help="Output file."
)
def page(keys: Path | None, out: Path) -> None:
    """Write the verification page as one file, which needs no service and no network.

    With --keys, the page has these keys filled in, and requires the signature of log-mldsa.vkey
    if it is there.
    """
    from lethe.certificates.keys import (
        ISSUER_KEY,
        LOG_KEY,
        read_issuer,
        read_log_key,
        required_ml_dsa_key,
    )
    from lethe.signing.keys import public_pem
    from lethe.web.page import alone

    vkey = pem = ""
    if keys is not None:
        log = read_log_key(key_file(None, keys, LOG_KEY, "--keys"))
        second = required_ml_dsa_key(keys, log.name)
        vkey = "\n".join(key.vkey for key in (log, second) if key is not None)
        pem = public_pem(read_issuer(key_file(None, keys, ISSUER_KEY, "--keys"))).strip()
    write_out(out, alone(vkey, pem).encode())


@certificate.command()
@click.argument("file", type=FILE)
@click.option("--format", "form", type=click.Choice(["html", "pdf"]), default="html")
@click.option("--language", type=click.Choice(["en", "de", "fr"]), default="en")
@click.option("--keys", type=FOLDER, help="Verify with log.vkey and issuer.pem from here.")
@trust_root_option
@click.option(
    "--page-url", default="", help="Address of the verification page, for link and QR code."
)
@click.option("--out", type=OUT_FILE, help="Output file. Default: CERTIFICATE_ID.html or .pdf.")
def report(
    file: Path,
    form: str,
    language: "Language",
    keys: Path | None,
    trust_root: Path | None,
    page_url: str,
    out: Path | None,
) -> None:
    """Render a certificate file as a document that people can read.

    The document is HTML, or PDF/A-3 with the file attached (extra `pdf`). Without --keys or
    --trust-root it says that nothing was verified. Exits with 1 if the file does not verify.
    """
    from lethe.certificates.keys import required_ml_dsa_key
    from lethe.certificates.verify import verify_certificate
    from lethe.report.certificate import Sheet, certificate_html
    from lethe.report.pdf import certificate_pdf
    from lethe.words.texts import texts

    data, verdict = file.read_bytes(), None
    if keys is not None or trust_root is not None:
        log, issuer, _ = trusted(keys, trust_root)
        second = None if keys is None else required_ml_dsa_key(keys, log.name)
        verdict = verify_certificate(data, log=log, issuer=issuer, log_ml_dsa=second)
    if page_url and not page_url.startswith(("https://", "http://")):
        raise click.UsageError("--page-url must begin with https:// or http://")
    sheet = Sheet.of(data, verdict, page_url)
    words = texts(language)
    made = (
        certificate_pdf(sheet, words)
        if form == "pdf"
        else certificate_html(sheet, words).encode()
    )
    path = out or Path(f"{sheet.statement.predicate.certificate_id}.{form}")
    write_out(path, made)
    if verdict is not None and verdict.result != "PASS":
        sys.exit(1)


@certificate.command()
@click.argument("file", type=FILE)
@click.option("--keys", type=FOLDER, help="A directory with log.vkey and issuer.pem.")
@trust_root_option
@click.option("--out", type=OUT_FILE, help="Output file. Default: CERTIFICATE_ID.cdx.json.")
def cyclonedx(file: Path, keys: Path | None, trust_root: Path | None, out: Path | None) -> None:
    """Write a CycloneDX 1.6 declaration that names the certificate FILE by its digest.

    The certificate is verified first; of one that does not verify nothing is written.
    """
    from lethe.certificates.bundle import MAX_BUNDLE
    from lethe.certificates.keys import required_ml_dsa_key
    from lethe.certificates.verify import verify_certificate
    from lethe.protocols.cyclonedx import UnverifiedError, declaration

    if keys is None and trust_root is None:
        raise click.UsageError("give --keys or --trust-root")
    log, issuer, _ = trusted(keys, trust_root)
    with file.open("rb") as opened:
        data = opened.read(MAX_BUNDLE + 1)
    second = None if keys is None else required_ml_dsa_key(keys, log.name)
    verdict = verify_certificate(data, log=log, issuer=issuer, log_ml_dsa=second)
    if verdict.result != "PASS" or verdict.statement is None:
        raise UnverifiedError(
            "the certificate does not verify with these keys: `lethe certificate verify` names "
            "the step"
        )
    made = declaration(data, verdict.statement, log.name)
    path = out or Path(f"{verdict.statement.predicate.certificate_id}.cdx.json")
    write_out(path, made)


@certificate.command()
@click.argument("request_id", metavar="ID", type=click.UUID)
@service_url
@click.option(
    "--out", type=OUT_FILE, help="Output file. Default: CERTIFICATE_ID.sigstore.json."
)
def get(request_id: UUID, url: str, out: Path | None) -> None:
    """Download the certificate of the request ID.

    The file is named after the certificate's id, because the request's id is secret.
    """
    from lethe.certificates.bundle import parse_bundle
    from lethe.certificates.statement import parse_statement

    data = _download(f"{url.rstrip('/')}/v1/requests/{request_id}/certificate")
    try:
        statement = parse_statement(parse_bundle(data).payload)
    except LetheError as error:
        raise DownloadError(f"the answer is not a certificate: {error.detail}") from None
    path = out or Path(f"{statement.predicate.certificate_id}.sigstore.json")
    if out is None and path.is_file() and path.read_bytes() != data:
        # The service chooses this name, and nothing is verified yet.
        raise DownloadError(
            f"{path} has other bytes, and a certificate never changes: keep it, name a file "
            "with --out, and verify both"
        )
    write_out(path, data)


def _download(url: str) -> bytes:
    import httpx2

    from lethe.certificates.bundle import MAX_BUNDLE, MEDIA_TYPE
    from lethe.client.core import check_coding

    headers = {
        "Accept": f"{MEDIA_TYPE}, application/json;q=0.9",
        "Accept-Encoding": "identity",
    }
    data = bytearray()
    try:
        with httpx2.stream("GET", url, headers=headers, timeout=TIMEOUT_S) as answer:
            check_coding(answer)
            for chunk in answer.iter_bytes():
                data += chunk
                if len(data) > MAX_BUNDLE:
                    raise DownloadError("the answer is too large to be a certificate")
            status = answer.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise DownloadError(f"the service cannot be reached: {type(error).__name__}") from None
    if status != 200:
        raise DownloadError(f"the service answered {status}{_problem(bytes(data))}")
    return bytes(data)


def _problem(data: bytes) -> str:
    """Return the detail of a problem document (RFC 9457), or nothing for any other answer."""
    try:
        problem = canonical.loads(data)
        parts = [problem["title"], problem["detail"]]
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return ": " + plain(": ".join(str(part) for part in parts))


def _print_verdict(name: str, verdict: "Verdict") -> None:
    from lethe.cli.text.certificate import print_statement

    click.echo(f"{HEADINGS[verdict.outcome]}  {plain(name)}")
    width = max(len(step.name) for step in verdict.steps)
    for step in verdict.steps:
        mark = "-" if not step.checked else "pass" if step.passed else "FAIL"
        click.echo(f"  {step.number}  {mark:4}  {step.name:{width}}  {plain(step.detail)}")
    if verdict.unmet and verdict.failed is not None:
        click.echo(
            "\nThe issuer signed the certificate and the log has it, but its checkpoint does "
            f"not satisfy your witness policy: {plain(verdict.failed.detail)}. It may be older "
            "than its witnesses."
        )
    if verdict.statement is not None:
        click.echo("\nThe certificate is authentic. It says:\n")
        print_statement(verdict.statement)
