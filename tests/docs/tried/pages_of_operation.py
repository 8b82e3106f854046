"""The operator's pages: an installation from its first start to a restore and a successor."""

import json
import sqlite3

import numpy as np
import pyarrow.parquet as pq

from lethe.client import Client
from lethe.identity import parse
from tests.docs.tried import files
from tests.docs.tried.desk import Desk, Page
from tests.docs.tried.pages_of_people import REGISTER, REVIEWED, SITE
from tests.e2e.harness import until
from tests.small import pack, rows

HERE = "http://127.0.0.1:{port}"
KEPT = {
    "/var/lib/lethe": "{here}/var",
    "/backups": "{here}/backups",
    "https://mirror.example.org/lethe": "mirror",
}


def token(desk: Desk) -> str:
    """Return the operator's token that was made first."""
    return desk.found(r"^(lethe_operator_\S+)", 0)


def client(desk: Desk, by: str) -> Client:
    """Return a client of the page's service, with a token."""
    return Client(HERE.format(port=desk.port), token=by)


def install(desk: Desk) -> None:
    """Do what docs/install.md does, up to the start of the service."""
    desk.run("umask 077")  # `lethe doctor` looks at the mode of the data directory
    desk.run("export LETHE_DATA_DIR=$PWD/var LETHE_ENVIRONMENT=production")
    desk.run(f"export LETHE_ORIGIN=erasure.example.org/log LETHE_PUBLIC_URL={SITE}")
    for command in ("migrate", "log init", "token new --scope operator --name alice"):
        desk.printed.append(desk.run(f"lethe {command}"))


def operate(desk: Desk) -> None:
    """Have a service with a model, where a person was erased, and folders for backups."""
    install(desk)
    url = HERE.format(port=desk.port)
    desk.run(f"export LETHE_PUBLIC_URL={url} LETHE_URL={url} LETHE_TOKEN={token(desk)}")
    desk.shell.start(f"lethe serve --embedded-worker --port {desk.port}", "serving http")
    files.customers(desk)
    desk.run(f"{REGISTER} churn")
    erase(desk, "bob@example.org")
    desk.run("mkdir backups elsewhere")


def erase(desk: Desk, address: str) -> None:
    """Have a person erased: an operator opens the case, an officer approves it."""
    with client(desk, token(desk)) as operator, client(desk, officer(desk)) as other:
        ref = operator.open_case(parse(f"email={address}"), "T-1")["ref"]
        other.decide_case(ref, "approve", None)
        until(lambda: operator.case(ref)["state"] == "answered", "the case")


def officer(desk: Desk) -> str:
    """Return the token of an officer, who is made when first asked for."""
    path = desk.directory / "officer"
    if not path.exists():
        path.write_text(desk.run("lethe token new --scope officer --name maria").split()[-1])
    return path.read_text()


def go_on(desk: Desk) -> None:
    """Have a person erased after the backup; a mirror has the log of it."""
    erase(desk, "jane@example.org")
    desk.run("lethe log mirror $LETHE_URL/v1/log mirror --vkey var/keys/log.vkey")


def lose_the_database(desk: Desk) -> None:
    """Lose it after a backup, and what happened in between."""
    operate(desk)
    desk.run("lethe backup new backups/2026-11-22 --keys elsewhere/keys-2026-11-22")
    go_on(desk)
    desk.shell.stop()
    desk.run("rm -r var/lethe.db* var/artifacts")


def lose_the_journal(desk: Desk) -> None:
    (desk.directory / "var" / "keys" / "erased.journal").write_bytes(b"")


def registration(desk: Desk) -> None:
    files.customers(desk)
    for name in ("alice", "shop", "shop-erasure", "ward7"):
        desk.run(f"lethe key new --out {name} --keyid {name}")
    calibration, mine = rows(), rows(seed=1, count=8, first=100)
    mine["clients"] = np.array(["ward-7"] * 8)
    (desk.directory / "calibration.npz").write_bytes(pack(calibration))
    (desk.directory / "rows.npz").write_bytes(pack(mine))
    loans(desk)
    table = pq.read_table(desk.directory / "customers.parquet")
    some = table.select(["id", "churned", "f_age", "f_income"]).to_pylist()
    with sqlite3.connect(desk.directory / "shop.db") as database:
        database.execute("CREATE TABLE customers (id, churned, f_age, f_income)")
        database.executemany(
            "INSERT INTO customers VALUES (:id, :churned, :f_age, :f_income)", some
        )
    database.close()


def loans(desk: Desk) -> None:
    """Write the arrays that are named as columns, and a recipe that predicts one of them."""
    count, rng = 120, np.random.default_rng(0)
    income = rng.normal(size=count)
    income[::9] = np.nan
    arrays = {
        "x": rng.normal(size=(count, 2)),
        "income": income,
        "region": np.array(["north", "south", ""] * (count // 3)),
        "rate": rng.random(count),
        "weight": rng.integers(1, 5, count).astype(float),
        "id": np.array([f"loan-{row}" for row in range(count)]),
    }
    np.savez(desk.directory / "loans.npz", allow_pickle=False, **arrays)
    recipe = {
        "estimator": "sklearn.ensemble.HistGradientBoostingRegressor",
        "parameters": {"max_iter": 5},
        "categories": {"region": ["north", "south"]},
    }
    (desk.directory / "recipe.json").write_text(json.dumps(recipe))


def kept(desk: Desk) -> None:
    files.customers(desk)
    desk.run(f"{REGISTER} churn")
    (desk.directory / "identifiers.txt").write_text("nobody-7\n")


PAGES = {
    "docs/install.md": Page(
        prepare=lambda desk: desk.run("umask 077"),
        runs=False,
        stands={
            "/var/lib/lethe": "{here}/var",
            "lethe serve": "lethe serve --port {port}",
        },
        serves={"lethe serve": "serving http"},
    ),
    "docs/register.md": Page(
        prepare=registration,
        settings=REVIEWED,
        stands={
            SITE: "{url}",
            "lethe_operator_…": lambda desk: desk.tokens["alice"],
            "postgresql://reader:…@db.example.org/shop": "sqlite:///shop.db",
        },
    ),
    "docs/backup.md": Page(
        prepare=operate,
        runs=False,
        stands={**KEPT, "/elsewhere": "{here}/elsewhere", "/mnt/nas": "{here}/nas"},
        before={"lethe backup rehearse": go_on},
        serves={"lethe backup follow": "a round begins"},
    ),
    "docs/restore.md": Page(
        prepare=lose_the_database,
        runs=False,
        stands=KEPT,
        before={"lethe restore --journal-only": lose_the_journal},
        typed={"lethe restore --journal-only": "y\n"},
        exits={"lethe log fsck": [1]},
    ),
    "docs/retention.md": Page(prepare=kept),
    "docs/monitoring.md": Page(),
    "docs/troubleshooting.md": Page(
        prepare=install,
        runs=False,
        stands={"/var/lib/lethe": "{here}/var"},
        exits={"lethe doctor": [1]},
    ),
}
