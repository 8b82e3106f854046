"""Checks 3 and 4 of models that are files: the retained set shrank, and the rest is gone."""

from workers.judge import (
    purge,
    retained_set,
)
from workers.judge.base import Judgement, PurgeClaim, RetainedSetClaim
from workers.judge.guard import guarded


def check_retention(kept: RetainedSetClaim, gone: PurgeClaim) -> list[Judgement]:
    """Judge both. The rows that are counted are those which the purge found still stored."""
    return [
        guarded(
            retained_set.NUMBER,
            retained_set.NAME,
            retained_set.THRESHOLD,
            lambda: retained_set.check_retained_set(kept, len(set(gone.retained_rows))),
        ),
        guarded(purge.NUMBER, purge.NAME, purge.THRESHOLD, lambda: purge.check_purge(gone)),
    ]
