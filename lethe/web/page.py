"""The verification page: as files that a service serves, or as one local file.

Neither may open a connection: their Content-Security-Policy makes the browser enforce that
nothing is uploaded. The local page has its script inline, since browsers import no modules from
a file:// page; the policy allows the script by its digest.
"""

import html
import json
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from lethe.words.texts import LANGUAGES, texts

# In the order of the single file: each imports only modules before it.
MODULES = (
    "bytes.mjs", "shape.mjs", "mldsa44.mjs", "signatures.mjs", "log.mjs", "certificate.mjs",
    "removal.mjs", "policy.mjs", "trust.mjs", "verify.mjs", "pdf.mjs", "texts.mjs", "page.mjs",
)  # fmt: skip
STYLE = "page.css"
_POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; base-uri 'none'; "
    "form-action 'none'"
)
POLICY = _POLICY.format(script="'self'", style="'self'") + "; frame-ancestors 'none'"
_IMPORT = re.compile(r"^import\b[^;]*?\bfrom\s+\"\./[\w.]+\";\n", re.MULTILINE)
_REEXPORT = re.compile(r"^export \{[^}]*\} from \"\./[\w.]+\";\n", re.MULTILINE)


def asset(name: str) -> str:
    """Return a module or the style sheet. Raises KeyError if there is no such file."""
    if name == "texts.mjs":
        sections = ("page", "certificate")
        found = {
            language: {section: texts(language).sections[section] for section in sections}
            for language in LANGUAGES
        }
        return f"export const TEXTS = {json.dumps(found, ensure_ascii=False)};\n"
    if name not in (*MODULES, STYLE):
        raise KeyError(name)
    return (files("lethe.web") / name).read_text(encoding="utf-8")


def served(log_vkey: str, issuer_pem: str, base: str, trust_root: str = "") -> str:
    """Return the page whose files are at `base`, with the service's keys filled in.

    log_vkey: the log's key; on a second line its ML-DSA-44 key, if that is required too.
    """
    head = (
        f'<link rel="stylesheet" href="{base}/{STYLE}">\n'
        f'<script type="module" src="{base}/page.mjs"></script>'
    )
    return _page(head, log_vkey, issuer_pem, trust_root)


def alone(log_vkey: str = "", issuer_pem: str = "") -> str:
    """Return the page as one file that works locally, without a network.

    log_vkey: as of `served`.
    """
    script = "".join(_inlined(asset(name)) for name in MODULES)
    style = asset(STYLE)
    policy = _POLICY.format(script=_digest(script), style=_digest(style))
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<style>{style}</style>\n"
        f'<script type="module">{script}</script>'
    )
    return _page(head, log_vkey, issuer_pem)


def _inlined(module: str) -> str:
    module = _REEXPORT.sub("", _IMPORT.sub("", module))
    return re.sub(r"^export ", "", module, flags=re.MULTILINE)


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _page(head: str, log_vkey: str, issuer_pem: str, trust_root: str = "") -> str:
    page = (files("lethe.web") / "page.html").read_text(encoding="utf-8")
    for place, text in (
        ("<!--HEAD-->", head),
        ("<!--LOG-->", html.escape(log_vkey)),
        ("<!--ISSUER-->", html.escape(issuer_pem)),
        ("<!--ROOT-->", html.escape(trust_root)),
    ):
        page = page.replace(place, text)
    return page
