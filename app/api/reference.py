"""The API's reference at /docs: Redoc reads /openapi.json, and loads nothing from elsewhere.

FastAPI's own page loads its scripts from a content delivery network. It is blank without the
internet, and lets a third party run code on the site where officers work.
"""

from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse

PATH = "/docs"
PROGRAM = f"{PATH}/redoc.standalone.js"
# Redoc writes styles into the page, and starts its search as a worker from a blob.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; worker-src blob:; base-uri 'none'; frame-ancestors 'none'"
)
PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lethe API</title>
</head>
<body>
<redoc spec-url="/openapi.json" disable-google-font hide-download-button></redoc>
<noscript>This page needs JavaScript. Read <a href="/openapi.json">openapi.json</a>.</noscript>
<script src="{PROGRAM}"></script>
</body>
</html>
"""

router = APIRouter(include_in_schema=False)


def program_file() -> Path:
    """Return the file of Redoc's program."""
    found = find_spec("fastapi_offline")  # not imported: only its files are used
    assert found is not None, "fastapi-offline is in the extra server"
    assert found.origin is not None
    return Path(found.origin).parent / "static" / "redoc.standalone.js"


@router.get(PATH)
def page() -> HTMLResponse:
    """Return the page."""
    return HTMLResponse(PAGE, headers={"content-security-policy": POLICY})


@router.get(PROGRAM)
def program() -> FileResponse:
    """Return Redoc."""
    return FileResponse(
        program_file(), media_type="text/javascript", headers={"cache-control": "max-age=86400"}
    )
