"""`lethe case verify-receipt` on the receipt of a case."""

import json
from pathlib import Path

from click.testing import CliRunner

from lethe.cli.case import case
from lethe.signing.keys import generate_key
from tests.app.intake.people import Mailbox, Page, Visitor
from tests.app.intake.test_asking import case_of, sign
from tests.installation import Installation
from tests.workers.jobs.desk.test_people import ANN


def test_the_receipt_says_whose_it_is_and_what_holds(
    page: Installation, visitor: Visitor, box: Mailbox, tmp_path: Path
) -> None:
    form, key = visitor.ask(ANN), generate_key()
    public, signature = sign(key, Page(form).statement.encode())
    done = Page(visitor.confirm(form, box.code(), key=public, signature=signature))
    file, log = tmp_path / "receipt.json", tmp_path / "log.vkey"
    data = visitor.follow(done.case_code, "/intake/file", file="receipt").content
    file.write_bytes(data)
    log.write_text(page.services.ledger.verifier.vkey + "\n")

    def verify(*more: str) -> tuple[int, str]:
        words = ["verify-receipt", str(file), "--log-key", str(log), *more]
        result = CliRunner().invoke(case, words)
        return result.exit_code, result.output

    status, said = verify("--identity", f"email={ANN.upper()}")
    assert status == 0, said
    assert "it is about this person" in said
    assert case_of(page).ref in said
    assert "its signature holds" in said
    told = json.loads(verify("--json")[1])
    assert (told["result"], told["person"]) == ("PASS", False)
    assert told["record"]["case"] == case_of(page).ref
    assert verify("--identity", "email=bob@example.org")[0] == 1
    status, said = verify("--identity", "email=bob@example.org", "--json")
    assert (status, json.loads(said)["result"]) == (1, "FAIL")
    assert verify("--identity", "nonsense")[0] == 1
    file.write_bytes(data.replace(b"gdpr", b"ccpa"))
    status, said = verify()
    assert (status, said[:4]) == (1, "FAIL")
