"""What the demonstration asks to be erased."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SINGLE, SEVERAL, WHOLE_CLIENTS = 13, 6, 1  # twenty requests
MOST_RECORDS_IN_ONE = 5


@dataclass(frozen=True, slots=True)
class Wish:
    """One erasure request to come: records by id, or one client."""

    label: str
    records: tuple[str, ...] = ()
    client: str | None = None


def plan_requests(
    records: Sequence[str], clients: Sequence[str], seed: int = 0
) -> tuple[list[Wish], list[str]]:
    """Return twenty disjoint wishes and some records that none of them names.

    The client to go is the median one by size, so that it holds something and not everything.
    """
    rng = np.random.default_rng(seed)
    sizes = sorted(Counter(clients).items(), key=lambda item: (item[1], item[0]))
    client = sizes[len(sizes) // 2][0]
    pool = [record for record, owner in zip(records, clients, strict=True) if owner != client]
    order = iter(rng.permutation(len(pool)).tolist())
    wishes = [Wish("1 record", (pool[next(order)],)) for _ in range(SINGLE)]
    for number in range(SEVERAL):
        count = 2 + number % (MOST_RECORDS_IN_ONE - 1)
        wishes.append(Wish(f"{count} records", tuple(pool[next(order)] for _ in range(count))))
    wishes.append(Wish(f"client, {dict(sizes)[client]} records", client=client))
    rng.shuffle(wishes)
    return wishes, [pool[position] for position in list(order)[:50]]
