"""What a page owes whoever hears it, or has only a keyboard: WCAG 2.2, levels A and AA."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

FIELDS = ("input", "select", "textarea")
SEEN = ("hidden", "submit")


@dataclass
class Heard(HTMLParser):
    """Collects what a screen reader reads of a page."""

    language: str = ""
    title: str = ""
    levels: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    labelled: set[str] = field(default_factory=set)
    described: set[str] = field(default_factory=set)
    fields: list[dict[str, str]] = field(default_factory=list)
    columns: list[dict[str, str]] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    text: str = ""
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self.open.append(tag)
        if tag == "html":
            self.language = own.get("lang", "")
        if tag[0] == "h" and tag[1:].isdigit():
            self.levels.append(int(tag[1:]))
        if tag == "label":
            self.labelled.add(own.get("for", ""))
        if tag in FIELDS and own.get("type") not in SEEN and "hidden" not in own:
            self.fields.append(own)
        if tag == "th":
            self.columns.append(own)
        if tag == "svg" and "aria-label" not in own and own.get("class") != "segno":
            self.silent.append(tag)
        if "id" in own:
            self.ids.append(own["id"])
        for name in ("aria-describedby", "aria-labelledby"):
            self.described.update(own.get(name, "").split())

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "title":
            self.title += data
        self.text += data

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass


def heard(page: str, language: str) -> Heard:
    """Read a page, and insist on language, title, headings, labels and table headers."""
    read = Heard()
    read.feed(page)
    assert read.language == language  # 3.1.1
    assert read.title.strip()  # 2.4.2
    assert read.levels.count(1) == 1
    assert read.levels[0] == 1
    for before, after in zip(read.levels, read.levels[1:], strict=False):
        assert after <= before + 1, read.levels  # 1.3.1
    assert len(set(read.ids)) == len(read.ids)
    assert read.described <= set(read.ids)
    for one in read.fields:  # 3.3.2, 4.1.2
        assert one.get("id") in read.labelled or "aria-label" in one, one
    assert all(one.get("scope") in ("col", "row") for one in read.columns)  # 1.3.1
    assert read.silent == []  # 1.1.1
    return read
