"""`lethe retention`: destroys items whose retention has ended."""

import json
import sys
from typing import TYPE_CHECKING

import click

from lethe.catalogue import RETAINED

if TYPE_CHECKING:
    from app.purge.retention import RetentionRun


@click.group()
def retention() -> None:
    """Destroy data whose retention has ended, and refuse requests left undecided too long."""


@retention.command("run")
@click.option("--dry-run", is_flag=True, help="Count what is due and destroy nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run_now(dry_run: bool, as_json: bool) -> None:
    """Destroy everything past its retention period that no legal hold covers.

    The workers' schedule runs it daily. Runs where the keys are; the service may run meanwhile.
    If it was interrupted, run it again. It refuses requests that nobody has decided on within
    LETHE_UNDECIDED_RETENTION_DAYS after their deadline. The other periods are the settings
    LETHE_REQUEST_, LETHE_EVIDENCE_, LETHE_CONTACT_ and LETHE_KEY_RETENTION_DAYS. Certificates,
    the log and public keys always stay. Exits with 1 if something is due by the database but
    not by the log: it is kept, and `lethe log fsck` names it.
    """
    from app.purge.retention import plan, run  # needs the server extra
    from app.service.context import open_services
    from app.settings import Settings

    services = open_services(Settings())
    try:
        done = plan(services) if dry_run else run(services)
    finally:
        services.close()
    if as_json:
        click.echo(json.dumps(done.as_json()))
    else:
        _print(done)
    if done.differs:
        sys.exit(1)


def _print(done: "RetentionRun") -> None:
    verb = "due" if done.dry_run else "destroyed"
    for kind in RETAINED:
        before = "" if kind not in done.before else f", ended before {done.before[kind]}"
        kept = f", {done.held[kind]} kept by legal holds" if done.held[kind] else ""
        left = f", {done.differs[kind]} left: tables and log differ" * bool(done.differs[kind])
        click.echo(f"{kind:10}{done.removed[kind]:>6} {verb}{before}{kept}{left}")
    if done.log_index is not None:
        click.echo(f"log entry {done.log_index}")
