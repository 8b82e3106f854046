"""What waits for an operator, and curves of a certificate, in a browser: axe, and the decision."""

from dataclasses import replace

import pytest

from lethe.certificates.attack_curve import AttackCurve, spelled
from lethe.certificates.statement import CheckPart
from tests.browser import accessible
from tests.browser.chromium import DRIVEN
from tests.browser.test_console import (
    DESK,
    PHONE,
    Enter,
    enter,
    office,
)
from tests.browser.test_console import Office as Served
from tests.browser.test_desk import shot
from tests.lethe.certificates.build import Office, contents
from tests.workers.jobs.attempts.test_decisions import spoil

__all__ = ["enter", "office"]  # fixtures: this module's own office
pytestmark = DRIVEN
SIZES = [PHONE, DESK]


@pytest.fixture(scope="module")
def stuck(office: Served) -> str:
    """The reference of the request of the waiting case, once every attempt was refuted."""
    caller = office.installation.caller
    with pytest.MonkeyPatch.context() as patch:
        spoil(patch)
        header = {"authorization": f"Bearer {office.tokens['officer']}"}
        address = f"/v1/cases/{office.waiting}"
        assert caller.http.post(f"{address}/approve", headers=header).status_code == 200
        office.installation.drain()
    (part,) = caller.operator("GET", address).json()["parts"]
    assert part["state"] == "needs-decision"
    return str(part["request_ref"])


@pytest.mark.parametrize("size", SIZES, ids=["phone", "desk"])
def test_axe_finds_nothing_on_what_waits(
    office: Served, stuck: str, enter: Enter, size: dict[str, int]
) -> None:
    tab = enter("operator", viewport=size, bypass_csp=True)
    case, request = (f"{office.address}/console/cases/{one}" for one in (office.waiting, stuck))
    for address in (case, request, f"{request}/retry", f"{request}/abandon"):
        tab.goto(address)
        accessible.check(tab)


def bent(power: float) -> AttackCurve:
    """Return a curve near the diagonal, over one that finds most members."""
    counts = tuple((n * 20, round((n / 25) ** power * 500)) for n in range(26))
    return AttackCurve(500, 500, counts, ((0, 0), (10, 400), (500, 500)), ("0.0662", "0.0662"))


@pytest.mark.parametrize("size", SIZES, ids=["phone", "desk"])
def test_axe_finds_nothing_on_curves(
    office: Served,
    enter: Enter,
    monkeypatch: pytest.MonkeyPatch,
    size: dict[str, int],
) -> None:
    checks = tuple(
        CheckPart(n, f"{name}:roc", "curve", spelled(bent(power)), None, None, True)
        for n, (name, power) in enumerate((("yeom", 0.93), ("lira", 1.04)), 1)
    )
    tab = enter("auditor", viewport=size, bypass_csp=True)
    tab.goto(f"{office.address}/console/cases/{office.answered}")
    address = tab.locator("tbody a[href*=certificates]").get_attribute("href")
    model = replace(contents()[1].model, ref="small")
    file = Office().certify(checks=checks, model=model).bundle
    monkeypatch.setattr("app.service.issued.certificates.bundle", lambda *_: file)
    tab.goto(office.address + address)
    accessible.check(tab)
    assert tab.locator("svg.curve").count() == 2
    box = tab.locator("svg.curve").first.bounding_box()
    assert box["width"] > 200
    assert box["x"] + box["width"] <= size["width"]
    if size == DESK:
        shot(tab.locator("section:has(#curves)"), "console-curves")


def test_an_operator_decides_without_javascript(
    office: Served, stuck: str, enter: Enter
) -> None:
    tab = enter("operator", java_script_enabled=False, locale="fr-FR")
    tab.goto(f"{office.address}/console/cases/{office.waiting}")
    assert "also after a refit" in tab.inner_text("main")
    tab.click("text=Réessayer…")
    assert tab.url.endswith(f"/{stuck}/retry")
    tab.fill("#why", "restored the rows")
    tab.click("main form button")
    assert tab.url.endswith(f"/console/cases/{office.waiting}")
    assert "restored the rows" in tab.inner_text("main")
