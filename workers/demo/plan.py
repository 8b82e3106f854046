"""The erasure requests of the demonstration."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lethe.identity import Identity
from workers.demo.service import DemoError

SINGLE = 13
_SIZES = (2, 3, 4, 5, 2, 3)  # records of each further request; with one client, twenty


@dataclass(frozen=True, slots=True)
class Wish:
    """A planned erasure request: records by id, one client, one of its subjects, or a person.

    A person's request is a case that the operator opens; requesters sign the others.
    """

    label: str
    records: tuple[str, ...] = ()
    client: str | None = None
    subject: str | None = None
    person: Identity | None = None


def plan_requests(
    records: Sequence[str], clients: Sequence[str]
) -> tuple[list[Wish], list[str]]:
    """Return twenty disjoint wishes and some records that none of them names.

    The erased client is the median one by size, so that it has some rows but not all.

    Raises DemoError if there are too few records for that with one left.
    """
    if not records:
        raise DemoError("the data holds no record to train on: add some")
    rng = np.random.default_rng(0)
    sizes = sorted(Counter(clients).items(), key=lambda item: (item[1], item[0]))
    client = sizes[len(sizes) // 2][0]
    pool = [record for record, owner in zip(records, clients, strict=True) if owner != client]
    if len(pool) <= (needed := SINGLE + sum(_SIZES)):
        raise DemoError(
            f"the demonstration erases {needed} records and one more client: the data has "
            f"only {len(pool)} records of other clients to train on"
        )
    order = iter(rng.permutation(len(pool)).tolist())
    wishes = [Wish("1 record", (pool[next(order)],)) for _ in range(SINGLE)]
    for count in _SIZES:
        wishes.append(Wish(f"{count} records", tuple(pool[next(order)] for _ in range(count))))
    wishes.append(Wish(f"client, {dict(sizes)[client]} records", client=client))
    rng.shuffle(wishes)
    return wishes, [pool[position] for position in list(order)[:50]]
