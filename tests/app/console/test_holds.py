"""Legal holds in the console: placed by one person, released by another, in the log."""

import pytest
from sqlmodel import select

from models import LegalHold
from tests.app.console.conftest import Desk
from tests.app.console.reader import Browser, read
from tests.installation import make_token

REASON, PAGE = "Smith v. Example", "/console/holds"


def named(desk: Desk, name: str, scope: str = "officer") -> Browser:
    """Return the browser of an officer of this name."""
    token = make_token(desk.installation.services, scope, name)
    return Browser(desk.installation.caller.http, token)


def stored(desk: Desk) -> list[LegalHold]:
    with desk.installation.services.reading() as session:
        return list(session.exec(select(LegalHold)))


def test_one_officer_places_it_and_another_releases_it(desk: Desk) -> None:
    maria, paul = named(desk, "maria"), named(desk, "paul")
    case = f"/console/cases/{desk.case}"
    (link,) = [one for one in maria.get(case).links if "/holds/place" in one]
    form = maria.get(link).form(f"{PAGE}/place")
    assert form.fields["ref"] == desk.case
    done = maria.post(form.action, {**form.fields, "reason": REASON})
    assert done.url.path == PAGE
    assert REASON in read(done).text
    [hold] = stored(desk)
    assert (hold.target, hold.placed_by, hold.reason) == (desk.case, "maria", REASON)
    assert "</span><br><strong>Under a legal hold</strong>" in maria.http.get("/console").text

    release = f"{PAGE}/{hold.id}/release"
    assert release not in maria.get(PAGE).links
    assert release not in maria.get(case).links
    own = maria.send(release, release)
    assert own.status_code == 403
    assert "nobody releases a hold that they placed" in read(own).text
    assert stored(desk)[0].released_at is None

    assert release in paul.get(PAGE).links
    assert release in paul.get(case).links
    assert REASON in paul.get(release).text
    assert paul.send(release, release).url.path == PAGE
    assert stored(desk)[0].released_by == "paul"
    assert "No hold stands" in paul.get(PAGE).text
    again = paul.send(release, release)
    assert again.status_code == 409
    desk.installation.check()


def test_a_model_is_held_from_its_page(desk: Desk) -> None:
    maria = named(desk, "maria")
    (link,) = [one for one in maria.get("/console/models/small").links if "/holds/place" in one]
    done = maria.send(link, f"{PAGE}/place", reason=REASON)
    assert "/console/models/small" in read(done).links
    assert [(one.kind, one.target) for one in stored(desk)] == [("model", "small")]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"ref": "nothing", "reason": REASON}, 404),
        ({"ref": "../x", "reason": REASON}, 422),
        ({"ref": "<script>", "reason": REASON}, 422),
        ({"ref": "small", "reason": ""}, 422),
        ({"ref": "small", "reason": "x" * 501}, 422),
        ({"reason": REASON}, 422),
    ],
)
def test_bad_input_places_nothing(desk: Desk, fields: dict[str, str], status: int) -> None:
    page = desk.browser().send(f"{PAGE}/place", f"{PAGE}/place", None, **fields)
    assert page.status_code == status
    assert "<script>" not in page.text.partition("<main")[2]
    assert stored(desk) == []


def test_a_reason_is_text_on_the_page(desk: Desk) -> None:
    script = '"><img src=x onerror=alert(1)>'
    done = desk.browser().send(f"{PAGE}/place", f"{PAGE}/place", ref="small", reason=script)
    assert script in read(done).text
    assert "img" not in read(done).tags


def test_auditors_see_no_holds_and_place_none(desk: Desk) -> None:
    maria, auditor = named(desk, "maria"), desk.browser("auditor")
    maria.send(f"{PAGE}/place", f"{PAGE}/place", ref="small", reason=REASON)
    [hold] = stored(desk)
    for address in (PAGE, f"{PAGE}/place", f"{PAGE}/{hold.id}/release"):
        assert auditor.http.get(address).status_code == 403
    for address in (f"/console/cases/{desk.case}", "/console/models/small", "/console"):
        assert not any("/holds" in one for one in auditor.get(address).links)
    fields = {**maria.get(f"{PAGE}/place").form(f"{PAGE}/place").fields, "reason": REASON}
    assert auditor.post(f"{PAGE}/place", fields).status_code == 403
    assert len(stored(desk)) == 1


def test_pages_of_holds_follow_one_another(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.console.holds.PAGE", 1)
    maria = named(desk, "maria")
    for ref in ("small", desk.case):
        maria.send(f"{PAGE}/place", f"{PAGE}/place", ref=ref, reason=REASON)
    first = maria.get(PAGE)
    (following,) = [one for one in first.links if "/holds?after=" in one]
    both = first.text + maria.get(following).text
    assert both.count("placed by you") == 2
    assert maria.http.get(f"{PAGE}/unknown/release").status_code == 404
