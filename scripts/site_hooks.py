"""What `mkdocs build` does besides: a list of decisions, and the HTTP API's reference.

Links to files outside docs/ would lead nowhere on a site: the names of those files are written.
"""

import json
import re
from pathlib import Path
from shutil import copyfile
from typing import Any

from mkdocs.structure.files import File

from app.api.reference import PAGE, PROGRAM, program_file
from app.main import described

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#]*)(#[^)]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add a list of all decisions as adr/index.md."""
    found = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    titles = [one.read_text("utf-8").splitlines()[0].removeprefix("# ") for one in found]
    lines = [f"- [{title}]({one.name})" for title, one in zip(titles, found, strict=True)]
    text = "\n".join(["# Decisions", "", *lines, ""])
    files.append(File.generated(config, "adr/index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace links that leave docs/ by the names of what they lead to."""
    del config, files
    source = ROOT / "docs" / page.file.src_uri

    def named(found: re.Match[str]) -> str:
        target = (source.parent / found[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return found[0]
        return f"{found[1]} (`{target.relative_to(ROOT)}`)"

    return _LINK.sub(named, markdown).replace("](adr/)", "](adr/index.md)")


def on_post_build(config: Any) -> None:
    """Write http-api.html, which reads openapi.json, beside the pages."""
    site = Path(config.site_dir)
    (site / "openapi.json").write_text(json.dumps(described()))
    program = Path(PROGRAM).name
    copyfile(program_file(), site / program)
    page = PAGE.replace('"/openapi.json"', '"openapi.json"').replace(PROGRAM, program)
    (site / "http-api.html").write_text(page)
