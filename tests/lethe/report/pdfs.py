"""Whether PDF can be made here: WeasyPrint loads the system's Pango."""

import pytest

from lethe.report.pdf import PdfMissingError, load_weasyprint

try:
    load_weasyprint()
    MISSING = ""
except PdfMissingError as error:
    MISSING = str(error)

needs_pdf = pytest.mark.skipif(
    bool(MISSING), reason=f"PDF needs the extra `pdf` and the system's Pango: {MISSING[:80]}"
)
