"""HTML from trees of elements: text is escaped on entry, so callers cannot forget it."""

import html
from collections.abc import Iterable, Mapping, Sequence
from unicodedata import category


class Markup(str):
    """Text that is already HTML: templates with the protocol `__html__` do not escape it."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return itself, the protocol of markupsafe and Jinja."""
        return str(self)


Content = str | Markup | Sequence["Content"]


def plain(text: str) -> str:
    """Replace invisible characters: a file could use them to alter the surrounding page.

    Spaces of all widths stay: French has a no-break space before a colon.
    """
    return "".join(
        c if c.isprintable() or category(c) == "Zs" else "\N{REPLACEMENT CHARACTER}"
        for c in text
    )


def rendered(content: Content) -> Markup:
    """Return content as HTML: text escaped, markup as it is, sequences joined."""
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return Markup(html.escape(plain(content)))
    return Markup("".join(map(rendered, content)))


def element(name: str, *content: Content, **attributes: str) -> Markup:
    """Return an element. A trailing underscore of an attribute's name is dropped."""
    own = "".join(
        f' {key.rstrip("_")}="{html.escape(plain(value))}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{own}>{rendered(content)}</{name}>")


def facts(pairs: Mapping[str, Content]) -> Markup:
    """Return a list of names with their values."""
    return element(
        "dl", [[element("dt", name), element("dd", value)] for name, value in pairs.items()]
    )


def bullets(lines: Iterable[Content]) -> Markup:
    """Return a list of lines."""
    return element("ul", [element("li", line) for line in lines])


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Content]], caption: str, kind: str = "plain"
) -> Markup:
    """Return a table whose first column has row headers; `kind` is its CSS class."""
    head = element("tr", [element("th", name, scope="col") for name in heads])
    body = [
        element("tr", element("th", first, scope="row"), [element("td", cell) for cell in rest])
        for first, *rest in rows
    ]
    parts = element("caption", caption), element("thead", head), element("tbody", body)
    return element("table", *parts, class_=kind)


def document(title: str, language: str, style: str, body: Content) -> str:
    """Return a whole page; `style` must be trusted CSS."""
    head = [
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    ]
    page = element("html", element("head", head), element("body", body), lang=language)
    return f"<!doctype html>\n{page}\n"
