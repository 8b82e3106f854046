"""The report of a period as a page: figures first, then the range of the log."""

from datetime import UTC, date, datetime
from typing import Any

from lethe import canonical
from lethe.report.certificate import style
from lethe.report.markup import Content, bullets, document, element, facts, table
from lethe.report.pdf import pdf
from lethe.words.texts import Texts, day_in

# In the order of a request's life.
ORDER = (
    "received", "certified", "refused", "withdrawn", "failed", "extended", "paused", "open",
)  # fmt: skip

# Characters of a line of the checkpoint. An ML-DSA-44 signature has 3,300 without a space, and
# WeasyPrint takes minutes to break them; whoever verifies reads report.json, which is attached.
WIDEST = 200


def period_html(report: Any, texts: Texts) -> str:
    """Return the page of a report from `lethe.report.period.build`."""

    def of(name: str, /, **values: object) -> str:
        return texts.of("period", name, **values)

    figures = [(of(name), str(report["figures"][name])) for name in ORDER]
    if report["days"] is not None:
        figures += [
            (f"{of('days')}: {of(name)}", str(report["days"][name]))
            for name in ("shortest", "median", "longest")
        ]
    methods = [
        (one["method"], one["guarantee"], str(one["certificates"]), str(one["records"]))
        for one in report["methods"]
    ]
    checks = [
        (one["check"], str(one["passed"]), str(one["failed"])) for one in report["checks"]
    ]
    first, last = (
        day_in(texts.language, date.fromisoformat(report[name])) for name in ("first", "last")
    )
    title = of("title", first=first, last=last)
    parts: list[Content] = [
        element("h1", title),
        element("p", of("lead")),
        element("p", of("personal"), class_="quiet"),
        table((of("what"), of("number")), figures, of("counts"), "counts"),
    ]
    if methods:
        heads = tuple(of(name) for name in ("method", "guarantee", "certificates", "records"))
        parts.append(table(heads, methods, of("methods")))
        heads = tuple(of(name) for name in ("check", "passed", "failed_checks"))
        parts.append(table(heads, checks, of("checks")))
    parts.append(element("section", _log_part(report["log"], texts)))
    return document(title, texts.language, style(), element("main", parts))


def _log_part(log: Any, texts: Texts) -> Content:
    def tree(name: str) -> str:
        return texts.of("period", "tree", size=log[name]["size"], root=log[name]["root"])

    start, end = log["start"]["size"], log["end"]["size"]
    named = {
        "origin": log["origin"],
        "entries": f"{start} – {end - 1}" if end > start else texts.of("period", "none"),
        "start": tree("start"),
        "end": tree("end"),
        "consistency": bullets(log["consistency"]["period"] or ["–"]),
        "head": [
            element("div", line if len(line) <= WIDEST else f"{line[:WIDEST]}…")
            for line in log["checkpoint"].split("\n")
            if line
        ],
    }
    return [
        element("h2", texts.of("period", "log")),
        element("p", texts.of("period", "how")),
        facts({texts.of("period", name): value for name, value in named.items()}),
    ]


def period_pdf(data: bytes, texts: Texts) -> bytes:
    """Return a report as PDF/A-3b with its JSON attached.

    Raises as `lethe.report.pdf.pdf`.
    """
    report = canonical.decode(data)
    last = date.fromisoformat(report["last"])
    day = datetime(last.year, last.month, last.day, tzinfo=UTC)
    return pdf(period_html(report, texts), {"report.json": data}, day)
