"""Every page of the console for whoever hears it, in each language."""

import re

import pytest

from lethe.words.texts import LANGUAGES, Language
from tests.app.accessible import heard
from tests.app.console.conftest import Desk
from tests.app.console.test_pages import PAGES


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_page_has_language_title_headings_labels_and_scopes(
    desk: Desk, language: Language
) -> None:
    officer, case = desk.browser(), f"/console/cases/{desk.case}"
    officer.http.headers["accept-language"] = language
    own = [f"{case}/{name}" for name in ("approve", "refuse", "extend", "pause", "contact")]
    place = f"/console/holds/place?ref={desk.case}"
    for address in (*(f"/console{one}" for one in PAGES), "/console/holds", place, case, *own):
        heard(officer.http.get(address).text, language)
    heard(officer.http.get("/console/models/none").text, language)
    heard(desk.browser(None).http.get("/console", headers=officer.http.headers).text, language)


def test_a_refused_token_is_tied_to_its_field(desk: Desk) -> None:
    browser = desk.browser(None)
    page = heard(browser.sign_in("wrong").text, "en")
    [token] = [one for one in page.fields if one["id"] == "token"]
    assert token["aria-invalid"] == "true"
    assert token["aria-describedby"].split() == ["refused", "token-hint"]
    [token] = [
        one
        for one in heard(browser.http.get("/console/sign-in").text, "en").fields
        if one["id"] == "token"
    ]
    assert "aria-invalid" not in token


def test_each_hint_is_tied_to_its_field(desk: Desk) -> None:
    """A hint below a field is read after the field was filled in."""
    officer = desk.browser()
    for address in ("/open", "/search", "/holds/place", "/sign-in"):
        page = officer.http.get(f"/console{address}").text
        hints = re.findall(r'<p class="hint"(?: id="([\w-]+)")?>', page)
        assert set(hints) <= heard(page, "en").described, address


def test_the_region_that_announces_a_filtered_list_stays(desk: Desk) -> None:
    """Replaced as a whole, it is a new live region, and those announce no first content."""
    officer = desk.browser()
    for address in ("/console", "/console/log"):
        text = officer.http.get(address).text
        filters = dict(re.findall(r'data-hx-(\w+)="([^"]*)"', text))
        assert filters["swap"] == "innerHTML"
        region = filters["target"]
        assert f'<div id="{region.removeprefix("#")}" aria-live="polite">' in text
        assert filters["select"] == f"{region} > *"  # not the region within itself


def test_days_have_their_zone_and_a_deadline_its_time(desk: Desk) -> None:
    officer = desk.browser()
    for address in ("/console", f"/console/cases/{desk.case}", "/console/models"):
        text = officer.http.get(address).text
        assert re.findall(r">[^<>]*\d{4}-\d\d-\d\d[^<>]*<", text)
        for shown in re.findall(r">[^<>]*\d{4}-\d\d-\d\d[^<>]*<", text):
            assert "UTC" in shown, shown
    due = desk.installation.caller.operator("GET", f"/v1/cases/{desk.case}").json()["due_at"]
    shown = f"{due[:10]} {due[11:16]} UTC"
    assert all(
        shown in officer.http.get(one).text
        for one in ("/console", f"/console/cases/{desk.case}")
    )


def test_the_neighbours_of_an_entry_are_named(desk: Desk) -> None:
    """A list of links says "log entry 1", not "#1": WCAG 2.4.4."""
    page = desk.browser().http.get("/console/log/1").text
    assert '<a rel="prev" href="/console/log/0">log entry 0</a>' in page
    assert '<a rel="next" href="/console/log/2">log entry 2</a>' in page


def test_what_cannot_be_undone_says_so_before(desk: Desk) -> None:
    officer, place = desk.browser(), "/console/holds/place"
    officer.send(place, place, ref=desk.case, reason="a lawsuit")
    other = desk.browser()
    page = other.get("/console/holds")
    release = next((one for one in page.links if one.endswith("/release")), "")
    assert "This cannot be undone." in other.get(release).text


def test_an_extension_says_until_when(desk: Desk) -> None:
    address = f"/console/cases/{desk.case}/extend"
    assert "three months after the receipt" in desk.browser().get(address).text
