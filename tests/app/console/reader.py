"""What a browser without JavaScript does with a page: read its text, send its forms."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin

from httpx2 import Response
from starlette.testclient import TestClient

VOID = ("meta", "link", "input", "br", "hr", "img")


@dataclass
class Form:
    """A form: where it is sent, and the values that its fields have."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


@dataclass
class Reader(HTMLParser):
    """Collects forms, links, scripts and what no policy without unsafe-inline would let run."""

    forms: list[Form] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    text: str = ""
    open: list[str] = field(default_factory=list)
    select: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.inline += [f"{tag} {name}" for name in values if name.startswith("on")]
        self.inline += [f"{tag} style" for _ in values if "style" in values]
        if tag == "style" or (tag == "script" and "src" not in values):
            self.inline.append(tag)
        if tag == "form":
            self.forms.append(Form(values["action"], values["method"]))
        if tag == "a":
            self.links.append(values["href"])
        if tag == "input" and "name" in values and values.get("type") != "radio":
            self.forms[-1].fields[values["name"]] = values.get("value", "")
        if tag == "select":
            self.select = values["name"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "

    def form(self, action: str) -> Form:
        """Return the form that is sent to an address."""
        return next(one for one in self.forms if one.action == action)


def read(page: Response) -> Reader:
    """Read a page, and insist that it is one, whole and without inline scripts and styles."""
    assert page.headers["content-type"] == "text/html; charset=utf-8", page.text
    assert "unsafe-inline" not in page.headers["content-security-policy"]
    reader = Reader()
    reader.feed(page.text)
    assert reader.open == []
    assert reader.inline == []
    return reader


class Browser:
    """A browser of one person."""

    def __init__(self, http: TestClient, token: str | None = None) -> None:
        self.http = TestClient(http.app, follow_redirects=True)
        if token is not None:
            page = self.sign_in(token)
            assert page.url.path == "/console", page.text

    def get(self, address: str, status: int = 200) -> Reader:
        """Read a page."""
        page = self.http.get(address)
        assert page.status_code == status, page.text
        return read(page)

    def send(
        self, address: str, action: str, headers: dict[str, str] | None = None, **fields: str
    ) -> Response:
        """Fill in and send a form of a page."""
        form = self.get(address).form(action)
        return self.post(action, {**form.fields, **fields}, headers)

    def post(
        self, action: str, fields: dict[str, str], headers: dict[str, str] | None = None
    ) -> Response:
        """Send fields as a form."""
        own = {
            "content-type": "application/x-www-form-urlencoded",
            "origin": "http://testserver",
            "sec-fetch-site": "same-origin",
            **(headers or {}),
        }
        return self.http.post(
            urljoin("http://testserver", action), content=urlencode(fields), headers=own
        )

    def sign_in(self, token: str) -> Response:
        """Sign in."""
        return self.send("/console/sign-in", "/console/sign-in", token=token)
