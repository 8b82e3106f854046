"""ROC curves of attacks in documents: drawn from what the check states, and from nothing else."""

import re
from dataclasses import replace
from io import BytesIO
from xml.etree import ElementTree

import pytest

from lethe.certificates.attack_curve import AttackCurve, spelled
from lethe.certificates.statement import AttemptPart, CheckPart, write_escalation
from lethe.report.certificate import (
    LEFT,
    SIZE,
    TOP,
    Sheet,
    certificate_html,
    curve_svg,
    curves,
)
from lethe.report.pdf import certificate_pdf
from lethe.words.texts import LANGUAGES, Language, texts
from tests.lethe.certificates.build import Office, contents
from tests.lethe.report.pdfs import needs_pdf

CURVE = AttackCurve(
    40, 40, ((0, 0), (2, 3), (40, 40)), ((0, 0), (0, 38), (40, 40)), ("0.2341", "0.2341")
)
SVG = "{http://www.w3.org/2000/svg}"


def sheet(*checks: tuple[str, str]) -> Sheet:
    """Return a certificate with checks of these names and values."""
    parts = tuple(
        CheckPart(number, name, "curve", value, None, None, True)
        for number, (name, value) in enumerate(checks, 1)
    )
    return Sheet.of(Office().certify(checks=parts).bundle)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_stated_curve_is_drawn_in_each_language(language: Language) -> None:
    own = texts(language)
    page = certificate_html(sheet(("yeom:roc", spelled(CURVE)), ("yeom:auc", "0.5")), own)
    assert page.count("<svg") == 1
    assert own.of("report", "curve_of", name="yeom") in page.replace("&#x27;", "'")
    assert own.of("report", "curve_below") in page
    assert spelled(CURVE) not in page


def test_curves_of_attempts_that_did_not_pass_are_drawn_with_their_methods() -> None:
    part = CheckPart(1, "yeom:roc", "curve", spelled(CURVE), None, None, True)
    failed = replace(part, number=2, name="yeom:auc", value="0.9", passed=False)
    before = write_escalation([AttemptPart(1, "hf-kcu", "FAIL", None, (part, failed))])
    method = replace(contents()[1].method, parameters=before)
    own = replace(part, value=spelled(replace(CURVE, after=CURVE.before)))
    made = Sheet.of(Office().certify(checks=(own,), method=method).bundle)
    drawn = curves(made.statement.predicate)
    assert [name for name, _ in drawn] == ["yeom", "yeom (hf-kcu, FAIL)"]
    assert drawn[1][1] == CURVE
    assert certificate_html(made, texts("en")).count("<svg") == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("yeom:roc", "2/3 of it"), ("yeom:auc", spelled(CURVE)), ("yeom:roc", "not measured")],
)
def test_what_states_no_curve_is_shown_as_text(name: str, value: str) -> None:
    made = sheet((name, value))
    assert curves(made.statement.predicate) == []
    page = certificate_html(made, texts("en"))
    assert "<svg" not in page
    assert value in page


def test_a_drawing_is_well_formed_and_inside_its_square() -> None:
    hostile = '"/><script>alert(1)</script>'
    root = ElementTree.fromstring(curve_svg(CURVE, hostile, "x<y", "y"))
    assert root.get("aria-label") == hostile
    assert root.find(f"{SVG}script") is None
    lines = {one.get("class"): one for one in root if one.get("points")}
    assert set(lines) == {"limit", "band", "before", "series"}
    for one in lines.values():
        places = [
            tuple(map(float, place.split(","))) for place in one.get("points", "").split()
        ]
        assert all(LEFT <= x <= LEFT + SIZE and TOP <= y <= TOP + SIZE for x, y in places)
    after = lines["series"].get("points", "").split()
    assert after[0] == f"{LEFT},{TOP + SIZE}"
    assert after[1] == f"{LEFT + SIZE * 2 // 40},{TOP + SIZE - SIZE * 3 // 40}"
    # Attributes only: a page's policy would refuse a style.
    assert not re.search(r"style", curve_svg(CURVE, "t", "x", "y"))


def test_a_hostile_name_of_a_check_is_text() -> None:
    page = certificate_html(sheet(("<script>x</script>:roc", spelled(CURVE))), texts("en"))
    assert "<script" not in page


@needs_pdf
def test_the_pdf_has_the_drawing() -> None:
    """A page with curves has more vector paths than the same page without."""
    import pikepdf

    def painted(made: Sheet) -> int:
        with pikepdf.open(BytesIO(certificate_pdf(made, texts("en")))) as opened:
            operators = [
                str(one.operator)
                for page in opened.pages
                for one in pikepdf.parse_content_stream(page)
            ]
            forms = [
                one
                for item in opened.objects
                if isinstance(item, pikepdf.Stream) and item.get("/Subtype") == "/Form"
                for one in map(str, (x.operator for x in pikepdf.parse_content_stream(item)))
            ]
        return sum(one in ("l", "S") for one in [*operators, *forms])

    assert painted(sheet(("yeom:roc", spelled(CURVE)))) >= painted(sheet(("yeom:roc", "2"))) + 8
