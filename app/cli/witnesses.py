"""`lethe log witnesses` and `ml-dsa`: further signatures on this installation's checkpoints."""

import click
from sqlmodel import Session

from app.keys.alone import alone
from app.keys.issuer import is_announced
from app.keys.log import logged_keys
from app.ledger.startup import create_ml_dsa, open_ledger, require_schema
from app.settings import Settings
from app.witnesses.gather import end as end_witnessing
from app.witnesses.policy import load_policy
from app.witnesses.rows import Rows
from app.witnesses.standing import contradictions, standings
from lethe.cli.options import as_json, print_json, print_table
from lethe.log.key_changes import ML_DSA
from models.database.session import opened_engine, reading


@click.command()
@click.option(
    "--end", is_flag=True, help="Stop waiting for witnesses; certificates that wait are issued."
)
@as_json
def witnesses(end: bool, as_json: bool) -> None:
    """Show each witness's latest cosignature, and why it is behind.

    Exits with 1 if one holds proof that the log's key signed another tree.
    """
    settings = Settings()
    with opened_engine(settings.resolved_database_url, settings.stall_seconds) as engine:
        require_schema(engine)
        ledger = open_ledger(settings, engine)
        if end:
            if load_policy(settings, ledger.keys) is not None:
                raise click.UsageError(
                    "unset LETHE_WITNESS_POLICY and LETHE_WITNESS_FAIL for all processes "
                    "first, or they start waiting again"
                )
            ended = end_witnessing(ledger)
            if as_json:
                print_json({"ended": ended})
                return
            click.echo("ended" if ended else "nothing to end, or no entry since: try again")
            return
        with Session(reading(engine)) as session:
            rows, latest = standings(session), ledger.latest()
            quorum = Rows(ledger).witnessed(session)
            forked = set(contradictions(session, ledger))
    seen = 0 if quorum is None else quorum[0]
    heads = ("witness", "cosigned", "at", "problem", "since")
    found = [
        (
            row.witness,
            str(row.size) if row.cosigned_at else "",
            f"{row.cosigned_at:%Y-%m-%d %H:%M:%SZ}" if row.cosigned_at else "",
            "forked" if row.witness in forked else row.problem or "",
            f"{row.since:%Y-%m-%d %H:%M:%SZ}" if row.since else "",
        )
        for row in rows
    ]
    if as_json:
        each = [
            {name: cell or None for name, cell in zip(heads, row, strict=True)} for row in found
        ]
        print_json({"entries": latest.size, "cosigned_by_quorum": seen, "witnesses": each})
    else:
        click.echo(f"{latest.size} entries, {seen} of them cosigned by a quorum")
        print_table(heads, found)
    if forked:
        raise SystemExit(1)


@click.command("ml-dsa")
def ml_dsa() -> None:
    """Sign checkpoints with ML-DSA-44 too, once all processes are restarted.

    Creates the key, unless an earlier run did, and prints its verifier key.
    """
    settings = Settings()
    with opened_engine(settings.resolved_database_url) as engine:
        require_schema(engine)
        ledger = open_ledger(settings, engine)
        named = logged_keys(ledger, role=ML_DSA) if is_announced(ledger, ML_DSA) else None
        with alone(settings.keys_dir):
            made = create_ml_dsa(
                settings, () if named is None else named.verifiers, ledger.latest().note
            )
    click.echo(made.verifier.vkey)
