"""The pages on requests and the people who make, decide and answer them."""

import sqlite3
import sys

import numpy as np

from lethe.identity import parse
from lethe.signing.keys import load_public_key
from tests.docs.tried import files
from tests.docs.tried.desk import Desk, Page, beside
from tests.e2e.harness import until
from tests.lethe.report.pdfs import MISSING
from tests.small import manifest, pack, rows

SITE = "https://erasure.example.org"
REGISTER = (
    "lethe model register ridge customers.parquet --label churned --record-id id --client region "
    "--subject customer --person email=email --features 'f_*' --penalty 10 --ref "
)
REVIEWED = {"LETHE_DECIDE": "review"}
COUNT = 60  # rows of a model that nobody is known in


def learn(desk: Desk, ref: str, **more: object) -> None:
    """Have a small ridge head learned, with the record ids of a file that has none."""
    arrays = rows(count=COUNT)
    arrays["records"] = np.array([f"record-{row:07d}" for row in range(COUNT)])
    with desk.operator() as operator:
        operator.register_model(manifest(ref=ref, **more), pack(arrays))
        until(lambda: operator.model(ref)["state"] == "ready", "the fit", desk.service.worker)


def register(desk: Desk, keyid: str, path: str) -> None:
    """Register a public key of the page's directory, as its operator."""
    with desk.operator() as operator:
        operator.register_key(
            load_public_key((desk.directory / path).read_bytes()), keyid=keyid
        )


def approve(desk: Desk, ref: str) -> None:
    """Have an officer approve a case or a request."""
    with desk.operator("olga") as officer:
        officer.decide_case(ref, "approve", None)


def answered(desk: Desk) -> None:
    """Have an officer approve the page's case, and wait until it is answered."""
    ref = case(desk)
    approve(desk, ref)
    with desk.operator() as operator:
        until(
            lambda: operator.case(ref)["state"] == "answered", "the case", desk.service.worker
        )


def case(desk: Desk) -> str:
    """Return the case that a command of the page opened."""
    return desk.found(r"^case +(\S+)$", 0)


def stuck(desk: Desk) -> str:
    """Return the id of the request that waits for a decision."""
    with desk.operator() as operator:
        (found,) = operator.requests(state="needs-decision")
        return str(found.id)


def readme(desk: Desk) -> None:
    files.customers(desk)
    beside(desk, "scripts")
    (desk.directory / ".venv").symlink_to(sys.prefix)


def demonstrated(desk: Desk) -> None:
    """Make what a demonstration leaves: here its service is the one that the page started."""
    desk.run(
        "mkdir -p demo-out/keys && lethe key new --out demo-out/keys/ --keyid requester-ed25519"
    )
    desk.run(
        "lethe key register --keyid requester-ed25519 --public-key demo-out/keys/*.pub.pem"
    )
    (desk.directory / "demo-out" / "service.json").write_text("{}")


def user_guide(desk: Desk) -> None:
    learn(desk, "support-intents")
    files.trusted(desk)
    beside(desk, "scripts")


def people(desk: Desk) -> None:
    files.customers(desk, "customer_number")
    (desk.directory / "phones.csv").write_text("record,phone\nc-1,+49 30 1\nc-2,+49 30 2\n")
    (desk.directory / "bad.csv").write_text("record,phone\nc-1,+49 30 1\nc-9999,+49 30 2\n")
    (desk.directory / "issuer.pem").write_bytes((desk.keys / "issuer.pem").read_bytes())


def officer_guide(desk: Desk) -> None:
    files.customers(desk)
    desk.run(f"{REGISTER} churn")
    stalled(desk)
    with desk.operator("web-form") as form:
        form.open_case(parse("email=jane@example.org"), "T-1")
        form.open_case(parse("email=held@example.org"), "T-2")
    unanswered(desk)
    desk.run("lethe key new --out shop-erasure --keyid shop-7-erasure")
    with desk.operator("me") as operator:
        pem = (desk.directory / "shop-erasure.pub.pem").read_bytes()
        operator.register_key(load_public_key(pem), keyid="shop-7-erasure", client="north")


def stalled(desk: Desk) -> None:
    """Have a request wait for a decision, because its model's row was changed."""
    learn(desk, "credit", decide="at-once")
    change(desk, "ridge-woodbury")
    ask(desk, "credit", "record-0000001", "needs-decision")
    change(desk, "ridge-exact")


def change(desk: Desk, method: str) -> None:
    """Write the method of a model into the database, past the service."""
    with sqlite3.connect(desk.service.directory / "data" / "lethe.db") as database:
        database.execute("UPDATE models SET method = ? WHERE ref = 'credit'", [method])
    database.close()


def ask(desk: Desk, model: str, record: str, state: str) -> None:
    """Submit a request with a key of the operator's, and wait until it has a state."""
    with desk.requester() as requester:
        asked = requester.submit_erasure(model, records=[record])
        until(lambda: requester.status(asked.id).state == state, state, desk.service.worker)


def unanswered(desk: Desk) -> None:
    """Have a request wait for a client that keeps its rows and does not answer."""
    service, arrays = desk.service, rows()
    mine = {name: value[arrays["clients"] == "c0"] for name, value in arrays.items()}
    (desk.directory / "rows.npz").write_bytes(pack(mine))
    desk.run("lethe key new --out ward --keyid ward")
    with desk.operator() as operator:
        pem = (desk.directory / "ward.pub.pem").read_bytes()
        operator.register_key(load_public_key(pem), "client", keyid="ward", client="c0")
        operator.register_model(
            manifest(ref="wards", data="statistics", penalty=1000.0, decide="at-once")
        )
        desk.run(
            "lethe client contribute --key ward.pem --keyid ward --model wards --data rows.npz"
        )
        until(
            lambda: operator.model("wards")["current_version"] == 1, "the sums", service.worker
        )
    ask(desk, "wards", "r0", "awaiting-client")


PAGES = {
    "docs/officer-guide.md": Page(
        prepare=officer_guide,
        settings=REVIEWED,
        stands={
            "a231837f-32ce-4fb6-9380-b184373ca364": lambda desk: desk.found(
                r"awaiting-review +churn +web-form +\S+ +(\S+)$", 0
            ),
            "releases/ID": lambda desk: "releases/" + desk.found(r'"id": ?"([^"]+)"', 0),
            "decide ID": lambda desk: "decide " + stuck(desk),
            "--format pdf": "--format html" if MISSING else "--format pdf",
        },
    ),
    "README.md": Page(
        prepare=readme,
        runs=False,
        stands={
            "http://127.0.0.1:8000": "http://127.0.0.1:{port}",
            "lethe serve": "lethe serve --port {port}",
            "CASE": case,
            "demo-out/certificates": "certificates",
            "--keys demo-out/keys": "--keys lethe-data/keys",
            "BASE_URL": "http://127.0.0.1:{port}",
            "demo RECORD": "churn c-9",
            "ID": lambda desk: desk.found(r'"id": *"([^"]+)"'),
        },
        before={"cat demo-out/service.json": demonstrated},
        serves={"lethe serve --embedded-worker": "serving http"},
    ),
    "docs/user-guide.md": Page(
        prepare=user_guide,
        who="",
        settings=REVIEWED,
        stands={
            SITE: "{url}",
            "withdraw ID": lambda desk: "withdraw " + desk.found(r'"id": *"([^"]+)"'),
            "ID": lambda desk: desk.found(r"^request +(\S+)", 0),
        },
        before={
            "lethe login": lambda desk: register(desk, "alice", "keys/alice.pub.pem"),
            "lethe request watch": lambda desk: approve(
                desk, desk.found(r"^reference +(\S+)", 0)
            ),
        },
    ),
    "docs/people.md": Page(
        prepare=people,
        settings=REVIEWED,
        stands={"a231837f-32ce-4fb6-9380-b184373ca364": case},
        before={
            "lethe person import phones.csv": lambda desk: desk.run(f"{REGISTER} credit"),
            "lethe case show": answered,
        },
        exits={"lethe person import bad.csv": [1]},
    ),
}
