"""`lethe witness`: create and run a witness of logs (C2SP tlog-witness)."""

import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import click

from lethe.cli.options import OUT_FOLDER, plain
from lethe.log.note import NoteError, parse_log_vkey


@click.group()
def witness() -> None:
    """Run a witness: cosign a log's checkpoint only if it extends the last one."""


@witness.command()
@click.argument("directory", type=OUT_FOLDER)
@click.option("--name", required=True, help="The witness's name: a URL without its scheme.")
@click.option(
    "--log", "logs", multiple=True, help="A log's vkey, or a file that contains it; repeatable."
)
def init(directory: Path, name: str, logs: tuple[str, ...]) -> None:
    """Create a witness in DIRECTORY and print its two verifier keys.

    The name is part of the keys and never changes. To add logs later, edit DIRECTORY/logs: a
    running witness reloads it.
    """
    from lethe.witness.home import create

    try:
        keys = [parse_log_vkey(_text(one)) for one in logs]
    except NoteError as error:
        raise NoteError(f"--log is neither a vkey nor a file: {error.detail}") from None
    for cosigner in create(directory, name, keys):
        click.echo(cosigner.verifier.vkey)
    click.echo(
        f"made {directory}: the keys above are witness.vkey (Ed25519) and witness-mldsa.vkey "
        "(ML-DSA-44) there; give both to operators of logs and to auditors",
        err=True,
    )


@witness.command()
@click.argument("directory", type=OUT_FOLDER)
@click.argument("trust_root", type=click.File("rb"))
def follow(directory: Path, trust_root: BinaryIO) -> None:
    """Apply a log's key rotation, as its TRUST_ROOT proves it ("-": standard input).

    Adds the keys that the witness's last key of the log leads to, and removes those that the
    log revoked. A running witness needs no restart.
    """
    from lethe.certificates.trust_root import parse_trust_root
    from lethe.log.fetch import MAX_TRUST_ROOT
    from lethe.witness.logs import follow as follow_log

    data = trust_root.read(MAX_TRUST_ROOT + 1)
    done = follow_log(directory, lambda known: parse_trust_root(data, known).log)
    for said, vkeys in (("added", done.added), ("removed", done.removed)):
        for vkey in vkeys:
            click.echo(plain(f"{said} {vkey}"))
    if not done.added and not done.removed:
        click.echo(plain(f"nothing has changed for {done.origin}"))


@witness.command()
@click.argument("directory", type=OUT_FOLDER)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=7380, show_default=True, help="Port; 0: any free one.")
def serve(directory: Path, host: str, port: int) -> None:
    """Answer logs and monitors until SIGTERM or Ctrl-C.

    Prints its address once it listens. Use a reverse proxy for TLS.
    """
    from lethe.witness.home import load
    from lethe.witness.server import Server

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    loaded = load(directory)
    try:
        server = Server((host, port), loaded)
    except (OSError, OverflowError) as error:
        raise click.UsageError(
            f"cannot listen on {host}:{port}: {error}; choose another --host or --port"
        ) from None

    def stop(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    bound = server.server_address
    click.echo(f"witness at http://{bound[0]!s}:{bound[1]}/")
    sys.stdout.flush()
    with server:
        server.serve_forever(poll_interval=0.1)
    loaded.heads.close()


def _text(file_or_text: str) -> str:
    try:
        return Path(file_or_text).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, ValueError):  # no such file, too long for a file name, or not text
        return file_or_text
