"""axe on an open page, in both colour schemes; no page is wider than its window."""

from types import MappingProxyType
from typing import Any

import pytest

# All rules of axe, and in the other scheme those that colours decide.
RULES = MappingProxyType(
    {"light": None, "dark": {"runOnly": ["color-contrast", "link-in-text-block"]}}
)


def check(tab: Any) -> None:
    """Insist that axe finds nothing on a page. Its policy for scripts must be bypassed."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for scheme, options in RULES.items():
        tab.emulate_media(color_scheme=scheme)
        found = axe.Axe().run(tab, options=options).response["violations"]
        nodes = [(one["id"], one["nodes"][0]["html"]) for one in found]
        assert not nodes, (tab.url, scheme, nodes)
    tab.emulate_media(color_scheme="light")
    assert not tab.evaluate("document.documentElement.scrollWidth > innerWidth"), tab.url
