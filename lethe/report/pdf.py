"""Documents as PDF/A-3b (ISO 19005-3) with their source attached, by WeasyPrint.

The extra `pdf` installs it. No image, font or style sheet is loaded from outside.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from io import BytesIO
from threading import Lock
from typing import Any

from lethe.errors import LetheError
from lethe.install import with_extra
from lethe.report.certificate import Sheet, certificate_html
from lethe.report.markup import Markup
from lethe.words.texts import Texts

# Of a page, in characters: a certificate of a hundred checks has 20,000, its longest word 71.
# WeasyPrint lays a text out again for each of its lines: a certificate of 1 MiB, as large as
# the format allows, would take it hours.
MOST_PAGE = 1 << 16
MOST_WORD = 1000
_FONT_TIME = Lock()


class PdfMissingError(LetheError):
    """WeasyPrint, segno or the libraries they load are not installed."""

    slug, title, status = "pdf-not-installed", "PDF is not available here", 501


class PdfTooLongError(LetheError):
    """A document that takes too long to render as PDF."""

    slug, title, status = "pdf-too-long", "The document is too long for a PDF", 422


def certificate_pdf(sheet: Sheet, texts: Texts) -> bytes:
    """Return the certificate as PDF/A-3b with the certificate file attached.

    The same file in the same language and release gives the same bytes. Raises as `pdf`.
    """
    code = Markup() if not sheet.page else qr_code(sheet.page)
    page = certificate_html(sheet, texts, code)
    return pdf(page, {sheet.name: sheet.data}, sheet.statement.predicate.completed_at)


def qr_code(address: str) -> Markup:
    """Return the QR code of an address as SVG.

    Raises PdfMissingError if segno is not installed.
    """
    try:
        import segno
    except ImportError:
        raise _missing() from None
    drawn = BytesIO()
    code = segno.make(address, error="m", micro=False)
    code.save(drawn, kind="svg", xmldecl=False, svgns=True, border=2, omitsize=True, nl=False)
    return Markup(drawn.getvalue().decode())


def pdf(page: str, attached: dict[str, bytes], day: datetime) -> bytes:
    """Return an HTML page as PDF/A-3b.

    attached: the source files of the document, by name. day: the time stamp of the document and
    its attachments.

    Raises:
        PdfTooLongError: The page has more than MOST_PAGE characters, or a word of more than
            MOST_WORD.
        PdfMissingError: WeasyPrint, or Pango that it loads, is not installed.
    """
    if len(page) > MOST_PAGE or max(map(len, re.split("[ <>]", page))) > MOST_WORD:
        raise PdfTooLongError(
            f"a PDF has at most {MOST_PAGE:,} characters, and {MOST_WORD:,} in a word: take "
            "the HTML"
        )
    weasyprint = load_weasyprint()
    nothing = weasyprint.urls.URLFetcher(allowed_protocols=())
    made = weasyprint.HTML(string=page, url_fetcher=nothing)
    files = [
        weasyprint.Attachment(
            string=data,
            name=name,
            description=name,
            relationship="Source",
            created=day,
            modified=day,
        )
        for name, data in attached.items()
    ]
    document = made.render()
    document.metadata.attachments = files
    document.metadata.created = document.metadata.modified = day.isoformat()
    identifier = sha256(page.encode()).digest()[:16]
    with _fixed_font_time():
        written = document.write_pdf(
            pdf_variant="pdf/a-3b", pdf_identifier=identifier, pdf_tags=True
        )
    assert isinstance(written, bytes)
    return written


@contextmanager
def _fixed_font_time() -> Iterator[None]:
    """Set a fixed time for embedded fonts: fontTools reads it only from this variable.

    Without the system's HarfBuzz-Subset, fontTools makes the subsets and would use the clock.
    """
    with _FONT_TIME:
        before = os.environ.get("SOURCE_DATE_EPOCH")
        os.environ["SOURCE_DATE_EPOCH"] = "0"
        try:
            yield
        finally:
            if before is None:
                del os.environ["SOURCE_DATE_EPOCH"]
            else:
                os.environ["SOURCE_DATE_EPOCH"] = before


def load_weasyprint() -> Any:
    """Import WeasyPrint and restore Pillow's settings.

    WeasyPrint makes Pillow accept truncated images in the whole process: the missing part of a
    damaged training image would be learned as black pixels. Raises PdfMissingError: WeasyPrint,
    or Pango that it loads, is not installed.
    """
    try:
        from PIL import ImageFile

        before = ImageFile.LOAD_TRUNCATED_IMAGES
        import weasyprint
        import weasyprint.urls
    except (ImportError, OSError):  # OSError: the library is there, Pango is not
        raise _missing() from None
    ImageFile.LOAD_TRUNCATED_IMAGES = before
    return weasyprint


def _missing() -> PdfMissingError:
    return PdfMissingError(
        f"the machine that makes the PDF has no WeasyPrint, segno or Pango: run there "
        f"{with_extra('pdf')} and install the system's Pango library (docs/certificate.md), or "
        "take the HTML"
    )
