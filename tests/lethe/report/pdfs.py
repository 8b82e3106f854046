"""Whether PDF can be made here: WeasyPrint loads the system's Pango."""

import pytest

try:
    import weasyprint

    MISSING = "" if weasyprint.__version__ else "no version"
except (ImportError, OSError) as error:
    MISSING = str(error)

needs_pdf = pytest.mark.skipif(
    bool(MISSING), reason=f"PDF needs the extra `pdf` and the system's Pango: {MISSING[:80]}"
)
