"""A certificate for people: plain words first, what was not tested, and nothing repainted."""

import re
import subprocess
import sys
import time
from dataclasses import replace
from html import unescape
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lethe.certificates.statement import CheckPart, MethodPart
from lethe.report.certificate import Sheet, certificate_html
from lethe.report.markup import Markup, element, rendered
from lethe.report.pdf import (
    MOST_PAGE,
    MOST_WORD,
    PdfMissingError,
    PdfTooLongError,
    certificate_pdf,
    qr_code,
)
from lethe.words.certificate import in_words
from lethe.words.texts import LANGUAGES, Language, day_in, texts
from tests.lethe.certificates.build import CERTIFICATE_ID, Office, contents, log_signer
from tests.lethe.cli.certificates import run, run_as_main
from tests.lethe.report.pdfs import needs_pdf
from tests.lethe.web.test_families import RECORDED, Recorded

CERTIFIED = Office().certify()
PAGE = "https://erasure.example/verify"
FAILED = CheckPart(1, "head-error", "error", "1", None, "0", False)


def sheet(**changes: Any) -> Sheet:
    made = Office().certify(**changes)
    return Sheet.of(made.bundle, made.verify(model=None, evidence=None), PAGE)


def text_of(page: str) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", page))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.name)
def test_each_method_has_a_page_in_each_language(
    recorded: Recorded, language: Language
) -> None:
    own = texts(language)
    made = Sheet.of(recorded.bundle)
    page = certificate_html(made, own)
    said = text_of(page)
    assert own.of("untested", "elsewhere") in said
    assert own.of("report", "unverified") in said
    assert not re.search(r"\{\w+\}", said.partition(own.of("report", "annex"))[0])
    # Plain words come first, and each check is in the annex.
    assert said.index(own.of("report", "short")) < said.index(own.of("report", "annex"))
    annex = said.partition(own.of("report", "annex"))[2]
    for check in made.statement.predicate.checks:
        assert check.name in annex
        assert check.value in annex
    assert f'lang="{language}"' in page


@pytest.mark.parametrize("language", LANGUAGES)
def test_english_words_of_the_file_are_marked_in_every_language(language: Language) -> None:
    """A screen reader pronounces them as English (WCAG 3.1.2)."""
    made = sheet()
    page = certificate_html(made, texts(language))
    predicate = made.statement.predicate
    stated = f"{predicate.guarantee.class_}: {predicate.guarantee.statement}"
    assert element("span", stated, lang="en") in page
    for check in predicate.checks:
        assert element("span", check.quantity, lang="en") in page


def test_sentences_agree_with_the_number_and_have_days_of_the_language() -> None:
    forms: tuple[tuple[Language, str, str], ...] = (
        ("de", "entfernt ist:", "entfernt sind:"),
        ("fr", "ait quitté", "aient quitté"),
    )
    for language, one, several in forms:
        for records, verb in ((1, one), (2, several)):
            scope = replace(sheet().statement.predicate.scope, records=records)
            failed = replace(
                sheet().statement.predicate, scope=scope, result="FAIL", checks=(FAILED,)
            )
            assert verb in in_words(failed, texts(language))
    completed = sheet().statement.predicate.completed_at.date()
    for language, _, _ in forms:
        said = in_words(sheet().statement.predicate, texts(language))
        assert day_in(language, completed) in said


def test_what_is_no_success_is_never_shown_as_one() -> None:
    good = certificate_html(sheet(), texts("en"))
    assert 'class="verdict good"' in good
    assert "Erasure confirmed" in good
    bad = certificate_html(sheet(checks=(FAILED,), result="FAIL"), texts("en"))
    assert 'class="verdict good"' not in bad
    assert "Erasure NOT confirmed" in bad
    forged = Sheet.of(CERTIFIED.bundle, CERTIFIED.verify(log=log_signer(seed=b"x").verifier))
    assert forged.verdict is not None
    assert forged.verdict.result == "FAIL"
    page = certificate_html(forged, texts("en"))
    assert "Erasure NOT confirmed" in page
    assert "do NOT hold" in page


def test_what_a_certificate_says_is_text() -> None:
    _, predicate = contents()
    hostile = '<script>alert(1)</script>"\u202e<img src="https://evil.example">'
    method = MethodPart(
        hostile, "1", {hostile: hostile}, predicate.method.code_digest, {hostile: hostile}
    )
    model = replace(predicate.model, ref=hostile)
    page = certificate_html(sheet(method=method, model=model), texts("en"))
    assert "<script" not in page
    assert "<img" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page


def test_markup_is_escaped_where_text_enters() -> None:
    assert rendered(["a<b", Markup("<i>"), ["&"]]) == "a&lt;b<i>&amp;"
    assert element("a", "x", href='"><b') == '<a href="&quot;&gt;&lt;b">x</a>'


def test_the_command_writes_a_page_and_says_what_it_verified(tmp_path: Path) -> None:
    path, out = CERTIFIED.write(tmp_path), tmp_path / "out.html"
    done = run("report", path, "--out", out, "--language", "de")
    assert done.exit_code == 0
    assert "NICHT geprüft" in out.read_text(encoding="utf-8")
    done = run("report", path, "--keys", tmp_path / "keys", "--out", out, "--page-url", PAGE)
    assert done.exit_code == 0
    assert "were checked when" in out.read_text(encoding="utf-8")
    assert f'href="{PAGE}"' in out.read_text(encoding="utf-8")
    assert run("report", path, "--page-url", "javascript:alert(1)").exit_code == 2
    assert run_as_main("report", out).exit_code == 2  # no certificate
    other = log_signer(seed=b"other").verifier.vkey
    (tmp_path / "keys/log.vkey").write_text(f"{other}\n")
    done = run_as_main("report", path, "--keys", tmp_path / "keys", "--out", out)
    assert done.exit_code == 1
    assert "NOT confirmed" in out.read_text(encoding="utf-8")


@needs_pdf
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_pdf_is_pdf_a_3_and_has_the_file(language: Language) -> None:
    import pikepdf

    made = certificate_pdf(sheet(), texts(language))
    with pikepdf.open(BytesIO(made)) as opened:
        with opened.open_metadata() as meta:
            assert (meta["pdfaid:part"], meta["pdfaid:conformance"]) == ("3", "B")
        (name,) = opened.attachments
        assert name == f"{CERTIFICATE_ID}.sigstore.json"
        filespec = opened.attachments[name]
        assert filespec.relationship == pikepdf.Name("/Source")
        bundle = filespec.get_file().read_bytes()
        assert Sheet.of(bundle).statement.predicate.certificate_id == CERTIFICATE_ID
        # ISO 19005-3, 6.8: each embedded file is associated with the document.
        associated = {one.objgen for one in opened.Root.AF}
        assert filespec.obj.objgen in associated
        assert "/OutputIntents" in opened.Root
        for page in opened.pages:  # 6.2.11.4: every font is embedded
            for font in page.resources.get("/Font", {}).values():
                descendants = font.get("/DescendantFonts", [font])
                assert any(
                    key in one.FontDescriptor
                    for one in descendants
                    for key in ("/FontFile", "/FontFile2", "/FontFile3")
                )


@needs_pdf
def test_the_same_file_gives_the_same_bytes_and_the_attachment_is_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pikepdf

    own = Sheet.of(CERTIFIED.bundle, None, PAGE)
    made = certificate_pdf(own, texts("en"))
    later = SimpleNamespace(time=lambda: time.time() + 86_400)
    monkeypatch.setattr("fontTools.misc.timeTools.time", later)
    assert made == certificate_pdf(own, texts("en"))
    with pikepdf.open(BytesIO(made)) as opened:
        (filespec,) = opened.attachments.values()
        assert filespec.get_file().read_bytes() == CERTIFIED.bundle


@needs_pdf
def test_the_code_is_the_address() -> None:
    code = qr_code(PAGE)
    assert code.startswith("<svg ")
    assert code == qr_code(PAGE) != qr_code(PAGE + "?")
    assert "&" not in qr_code('https://a.example/?a="<>&')


@needs_pdf
def test_pillow_still_refuses_truncated_images() -> None:
    code = (
        "from PIL import ImageFile; from lethe.report.pdf import load_weasyprint; "
        "load_weasyprint(); assert not ImageFile.LOAD_TRUNCATED_IMAGES"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("missing", ["segno", "weasyprint"])
def test_without_the_extra_it_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PdfMissingError, match=r"\.\[pdf\]"):
        certificate_pdf(sheet(), texts("en"))


def stating(statement: str, **parameters: str) -> Sheet:
    _, predicate = contents()
    guarantee = replace(predicate.guarantee, statement=statement)
    return sheet(guarantee=guarantee, method=replace(predicate.method, parameters=parameters))


@pytest.mark.parametrize(
    ("statement", "parameters"),
    [
        ("x" * (MOST_WORD + 1), {}),
        ("\u00a0x" * MOST_WORD, {}),  # WeasyPrint breaks no line at these spaces either
        ("xy " * (MOST_PAGE // 3), {}),
        ("xy", {f"{number:x}": "v" for number in range(MOST_PAGE // 40)}),
    ],
    ids=["word", "other-spaces", "text", "rows"],
)
def test_what_renders_for_hours_is_no_pdf(
    statement: str, parameters: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Refused before the renderer is loaded.
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    made = replace(stating(statement, **parameters), page="")
    with pytest.raises(PdfTooLongError, match="take the HTML"):
        certificate_pdf(made, texts("en"))
    assert certificate_html(made, texts("en"))


@needs_pdf
@pytest.mark.parametrize("text", ["xy " * 133, "x" * 400], ids=["words", "word"])
def test_a_text_is_not_laid_out_again_for_each_character(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weasyprint.layout import inline, preferred

    counted = 0

    def count(text: str, *others: Any, **named: Any) -> Any:
        nonlocal counted
        counted += len(text)
        return split(text, *others, **named)

    split = inline.split_first_line
    certificate_pdf(stating("x"), texts("en"))
    for module in (inline, preferred):
        monkeypatch.setattr(module, "split_first_line", count)
    certificate_pdf(stating("x", name="x"), texts("en"))
    short, counted = counted, 0
    certificate_pdf(stating(text, name=text), texts("en"))
    assert counted < short + 100 * len(text)
