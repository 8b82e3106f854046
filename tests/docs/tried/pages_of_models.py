"""The pages on models and on the installation."""

from pathlib import Path

from lethe.identity import parse
from tests.docs.tried import files
from tests.docs.tried.desk import Desk, Page
from tests.docs.tried.pages_of_people import learn
from tests.e2e.harness import until

FILE = "2783d29f-81d5-4bfd-97d7-4297766da8ce.sigstore.json"  # as in the pages


def erase(desk: Desk, model: str, *records: str) -> str:
    """Have an operator's key erase records; returns the request's id once it is certified."""
    with desk.requester() as requester:
        asked = requester.submit_erasure(model, records=list(records))
        assert requester.wait(asked.id, timeout=60).state == "certified"
    return asked.id


def certificate(desk: Desk, request: str, name: str) -> Path:
    """Download a certificate into the page's directory."""
    path = desk.directory / name
    with desk.operator() as anyone:
        path.write_bytes(anyone.certificate(request))
    return path


def keys(desk: Desk) -> None:
    files.trusted(desk)
    (desk.directory / "old.vkey").write_bytes((desk.keys / "log.vkey").read_bytes())
    learn(desk, "churn")
    certificate(desk, erase(desk, "churn", "record-0000001"), FILE)


def receipt(desk: Desk) -> None:
    learn(desk, "churn")
    certificate(desk, erase(desk, "churn", "record-0000001"), FILE)
    desk.run(f"lethe certificate receipt {FILE} --out mine.cose")
    desk.run(f"file={FILE} receipt=mine.cose keys={desk.keys}")


def deletion(desk: Desk) -> None:
    learn(desk, "churn")
    erase(desk, "churn", "record-0000001")


def download(desk: Desk) -> None:
    learn(desk, "digits")
    erase(desk, "digits", "record-0000001")
    erase(desk, "digits", "record-0000002")


def erase_jane(desk: Desk) -> None:
    """Have a person erased from all models."""
    with desk.operator() as operator:
        made = operator.open_case(parse("email=jane@example.org"), "T-0")
        until(
            lambda: operator.case(made["ref"])["state"] == "answered",
            "the case",
            desk.service.worker,
        )


PAGES = {
    "docs/keys.md": Page(
        prepare=keys,
        stands={"https://lethe.example.org": "{url}", "FILE": FILE},
    ),
    "docs/console.md": Page(),
    "docs/certificate.md": Page(prepare=receipt),
    "docs/development.md": Page(
        stands={"lethe serve": "lethe serve --port {port}"},
        serves={"LETHE_FAULT='certify": "", "LETHE_FAULT='ledger": "serving http"},
    ),
    "docs/models.md": Page(prepare=deletion, typed={"lethe model delete churn": "y\n"}),
    "docs/download.md": Page(
        prepare=download,
        stands={"export LETHE_TOKEN=…": lambda desk: f"export LETHE_TOKEN={desk.tokens['me']}"},
    ),
    "docs/held-out.md": Page(
        prepare=files.customers,
        who="me",
        before={"lethe model show churn": erase_jane},
    ),
}
