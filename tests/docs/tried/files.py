"""The files that pages name and do not make."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.docs.markdown import blocks
from tests.docs.tried.desk import Desk
from workers.data.federation import hold_out

LABELLED, UNLABELLED = 400, 12
REGIONS = ("north", "south", "east", "west")


def customers(desk: Desk, *more: str) -> None:
    """Write customers.parquet: two rows of a customer, some without a label.

    jane@example.org has the first two rows that are not held out, bob@example.org the next two,
    held@example.org one that is held out.
    more: columns beside those of the README: customer_number, spend, w.
    """
    count = LABELLED + UNLABELLED
    rng = np.random.default_rng(0)
    age = np.round(rng.normal(50, 12, count), 1)
    numbers = np.round(rng.normal(size=(count, 3)), 3)
    region = [REGIONS[row // 2 % len(REGIONS)] for row in range(count)]
    email = [f"Customer{row // 2}@example.org" for row in range(count)]
    held = hold_out(np.array(region[:LABELLED]), 0)
    learned = np.flatnonzero(~held).tolist()
    for row, address in [
        *((row, "Jane@example.org") for row in learned[:2]),
        *((row, "bob@example.org") for row in learned[2:4]),
        (int(np.flatnonzero(held)[0]), "held@example.org"),
    ]:
        email[row] = address
    churned = np.where(age + 20 * numbers[:, 0] > 50, "yes", "no").tolist()
    columns = {
        "id": [f"c-{row}" for row in range(count)],
        "region": region,
        "customer": [f"k{row // 2}" for row in range(count)],
        "email": email,
        "churned": [*churned[:LABELLED], *[None] * UNLABELLED],
        "f_age": age,
        "f_income": numbers[:, 0],
        "f_months": numbers[:, 1],
        "f_calls": numbers[:, 2],
        "f_member": rng.random(count) > 0.5,
        "note": ["called", "wrote"] * (count // 2),
        "since": ["2024-01-31"] * count,
    }
    further = {
        "customer_number": [f"00{row}" for row in range(count)],
        "spend": [*(age * 3 + numbers[:, 1])[:LABELLED].tolist(), *[None] * UNLABELLED],
        "w": 1 + rng.random(count),
    }
    columns |= {name: further[name] for name in more}
    pq.write_table(pa.table(columns), desk.directory / "customers.parquet")


def first(page: str) -> str:
    """Return the JSON document that a page shows first: the file that its commands take."""
    return blocks(page, "json")[0]


def trusted(desk: Desk) -> None:
    """Put the public keys that an operator hands out into trusted/."""
    folder = desk.directory / "trusted"
    folder.mkdir(exist_ok=True)
    for name in ("log.vkey", "issuer.pem"):
        (folder / name).write_bytes((desk.keys / name).read_bytes())
