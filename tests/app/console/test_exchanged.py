"""The console shows no certificate under the reference of another request."""

import pytest

from tests.app.console.reader import Browser
from tests.exchanged import exchange_certificates, exchange_references
from tests.installation import Installation, make_token

FILES = ("", "/bundle", "/html", "/pdf")


@pytest.mark.parametrize("references", [True, False], ids=["and references", "certificates"])
def test_no_page_or_file_is_of_another_request(
    installation: Installation, references: bool
) -> None:
    caller, engine = installation.caller, installation.services.engine
    installation.ready()
    one, other = (str(caller.erase_records(record).json()["id"]) for record in ("r1", "r2"))
    installation.drain()
    listed = caller.operator("GET", "/v1/requests").json()["items"]
    addresses = [f"/console/certificates/{item['ref']}" for item in listed]
    auditor = Browser(caller.http, make_token(installation.services, "auditor"))
    for address in addresses:
        assert "Erasure confirmed" in auditor.get(address).text
    exchange_certificates(engine, one, other)
    if references:
        exchange_references(engine, one, other)
    for address in addresses:
        for file in FILES:
            answer = auditor.http.get(address + file)
            assert answer.status_code == 500, file
            assert "Erasure confirmed" not in answer.text
    assert auditor.http.get("/console/models/small").status_code == 500
