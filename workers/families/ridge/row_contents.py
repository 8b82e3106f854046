"""What the verifier of a ridge head is given to see that no row's content has moved."""

from collections.abc import Iterable

from sqlmodel import Session

from app.ledger.sequencer import Ledger
from models import Model, ModelVersion
from workers.families.ridge.blocks import Block, RidgeBlock
from workers.families.ridge.rows import owners, published, rows_digest
from workers.jobs.case import Case
from workers.jobs.logged import versions_of
from workers.judge.ridge.claim import BlockClaim, RowsClaim


def claim_of(
    ledger: Ledger, session: Session, case: Case, stored: Iterable[tuple[int, RidgeBlock]]
) -> RowsClaim | None:
    """Return the claim that an update's rows are those of the log, None if none are here.

    stored: the model's blocks, each with the id of its subject.
    """
    model, plan = case.model, case.plan
    assert model.id is not None
    if model.config["data"] != "rows":
        return None
    known = owners(session, model.id)
    since, before = _before(ledger, model, case.before)
    return RowsClaim(
        blocks=[
            BlockClaim(*known[subject], block.records, block.salts, block.learned)
            for subject, block in stored
            if isinstance(block, Block)
        ],
        gone=list(zip(plan.rows_gone, plan.rows_learned, strict=True)),
        since=since,
        before=before,
        after=published(ledger, model, case.after),
    )


def _before(ledger: Ledger, model: Model, last: ModelVersion) -> tuple[int, list[str | None]]:
    """Return the number of the last version that no contribution made, and what the log says.

    That is of the rows of this version and of all up to `last`. Version 0 has no rows.
    """
    found: list[str | None] = []
    logged = versions_of(ledger, model)
    for number in range(last.number, 0, -1):
        digests = logged[number - 1][1].digests
        found.append(digests.get("rows"))
        if "added" not in digests:
            return number, found[::-1]
    return 0, [rows_digest(()), *found[::-1]]
