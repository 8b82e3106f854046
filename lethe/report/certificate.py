"""A certificate as a page for people: plain words first, the technical annex second."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from itertools import pairwise

from lethe.catalogue import BOUNDS
from lethe.certificates.attack_curve import SUFFIX, AttackCurve, Line, parse
from lethe.certificates.bundle import Bundle, parse_bundle
from lethe.certificates.statement import (
    ATTEMPT,
    ATTEMPTS,
    NAMED,
    CheckPart,
    Predicate,
    Statement,
    certified_number,
    parse_statement,
    read_escalation,
    spelled,
)
from lethe.certificates.verify import Verdict
from lethe.report.markup import Content, Markup, bullets, document, element, facts, table
from lethe.words.certificate import in_words, untested
from lethe.words.texts import Texts

SIZE, LEFT, TOP = 240, 40, 10  # of the square, and the margins left of and above it
WIDTH, HEIGHT = LEFT + SIZE + 14, TOP + SIZE + 38
INK, QUIET = "#0b57b0", "#4d5661"
_BAND = {"class": "band", "fill": INK, "fill-opacity": "0.18"}
_BEFORE = {"stroke-dasharray": "2 4", "stroke-width": "2"}
_TEXT = {
    "class": "axis",
    "text-anchor": "middle",
    "font-size": "11",
    "font-family": "DejaVu Sans, system-ui, sans-serif",
    "fill": QUIET,
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A certificate file to render.

    verdict: of its verification, None if it was not verified. page: the address of the
    verification page, or nothing.
    """

    data: bytes
    bundle: Bundle
    statement: Statement
    verdict: Verdict | None
    page: str

    @classmethod
    def of(cls, data: bytes, verdict: Verdict | None = None, page: str = "") -> "Sheet":
        """Parse a certificate file. Raises NotCanonicalError or ShapeError if it is not one."""
        bundle = parse_bundle(data)
        return cls(data, bundle, parse_statement(bundle.payload), verdict, page)

    @property
    def name(self) -> str:
        """The name of the certificate's file."""
        return f"{self.statement.predicate.certificate_id}.sigstore.json"

    @property
    def is_good(self) -> bool:
        """Whether the result is PASS, and no verification failed."""
        verified = self.verdict is None or self.verdict.result == "PASS"
        return verified and self.statement.predicate.result == "PASS"


def style() -> str:
    """Return the style sheet of all documents."""
    return (files("lethe.report") / "style.css").read_text(encoding="utf-8")


def certificate_html(sheet: Sheet, texts: Texts, code: Markup | None = None) -> str:
    """Return a whole HTML page.

    code: the QR code (SVG) of the verification page's address, for a printed page with the
    certificate file attached.
    """
    title = texts.of("report", "title")
    body = element(
        "main",
        element("h1", title),
        _plain_part(sheet, texts),
        _how_to_verify(sheet, texts, code),
        element("section", _annex(sheet, texts), class_="annex"),
    )
    return document(title, texts.language, style(), body)


def _plain_part(sheet: Sheet, texts: Texts) -> Content:
    predicate = sheet.statement.predicate
    word = "erased" if sheet.is_good else "not_erased"
    verified = "unverified"
    if sheet.verdict is not None:
        verified = "verified" if sheet.verdict.result == "PASS" else "verify_failed"
    return [
        element(
            "p", texts.of("report", word), class_="verdict good" if sheet.is_good else "verdict"
        ),
        element("h2", texts.of("report", "short")),
        element("p", in_words(predicate, texts), class_="words"),
        element("p", texts.of("report", verified)),
        element("h2", texts.of("report", "not_tested")),
        element("p", texts.of("report", "not_tested_lead")),
        bullets(untested(predicate, texts)),
    ]


def _how_to_verify(sheet: Sheet, texts: Texts, code: Markup | None) -> Content:
    attached = code is not None
    how = texts.of("report", "verify_how" if attached else "verify_html", name=sheet.name)
    words = [element("p", how)]
    if sheet.page:
        words.append(element("p", element("a", sheet.page, href=sheet.page)))
    words.append(element("p", texts.of("report", "this_page"), class_="quiet"))
    block: Content = words
    if code is not None:
        drawn = element("div", code, **{"role": "img", "aria-label": sheet.page})
        block = element("div", drawn, element("div", words), class_="check")
    return [element("h2", texts.of("report", "verify")), block]


def _annex(sheet: Sheet, texts: Texts) -> Content:
    predicate = sheet.statement.predicate

    def of(name: str, /, **values: object) -> str:
        return texts.of("report", name, **values)

    parts: list[Content] = [element("h2", of("annex")), facts(_facts(sheet, texts))]
    heads = [
        of(name) for name in ("number", "name", "measured", "value", "threshold", "outcome")
    ]
    rows = [_check_row(check, texts) for check in predicate.checks]
    parts.append(table(heads, rows, of("checks"), "checks"))
    if drawn := curves(predicate):
        parts.append(element("h3", of("curves")))
        parts.append(element("p", of("curves_lead"), class_="quiet"))
        figures = [
            element("figure", svg, element("figcaption", name))
            for name, svg in curve_plots(drawn, texts)
        ]
        parts.append(element("div", figures, class_="curves"))
    for name, own in (
        ("bounds", {BOUNDS.get(key, key): v for key, v in predicate.guarantee.bounds.items()}),
        ("parameters", _parameters(predicate)),
        ("environment", predicate.method.environment),
        ("evidence", {part.name: f"sha256:{part.digest}" for part in predicate.evidence}),
    ):
        if own:
            parts.append(table((of("entry"), of("value")), sorted(own.items()), of(name)))
    if sheet.verdict is not None:
        steps = [
            (
                _english(f"{step.number}. {step.name}"),
                _outcome(step.passed, texts),
                _english(step.detail),
            )
            for step in sheet.verdict.steps
        ]
        heads = [of("entry"), of("outcome"), of("value")]
        parts.append(table(heads, steps, of("steps")))
    return parts


def _facts(sheet: Sheet, texts: Texts) -> Mapping[str, Content]:
    predicate, entry = sheet.statement.predicate, sheet.bundle.entry
    sets, purged = predicate.retained_set, predicate.purged
    proof = entry.inclusion_proof
    origin = proof.checkpoint.envelope.partition("\n")[0]
    subjects = [f"{one.name} sha256:{one.digest}" for one in sheet.statement.subject]
    values: dict[str, Content] = {
        "subject": ", ".join(subjects),
        "before": f"sha256:{predicate.model.version_before.digest}",
        "scope": f"{predicate.scope.level}, {predicate.scope.records}",
        "retained": texts.of(
            "report", "retained_value", before=sets.before.count, after=sets.after.count
        ),
        "method": f"{predicate.method.id} {predicate.method.version}, "
        f"sha256:{predicate.method.code_digest}",
        "guarantee": _english(f"{predicate.guarantee.class_}: {predicate.guarantee.statement}"),
        "verifier": f"{predicate.verifier.id} {predicate.verifier.version}, "
        f"sha256:{predicate.verifier.code_digest}",
        "purged": texts.of(
            "report",
            "purged_value",
            artifacts=len(purged.artifacts),
            rows=purged.feature_rows,
            keys=purged.keys_destroyed,
        ),
        "request": f"{predicate.request_ref} ({predicate.request_log_index})",
        "certificate": predicate.certificate_id,
        "completed": predicate.completed_at.isoformat(),
        "issuer": sheet.bundle.keyid,
        "log_entry": texts.of(
            "report", "log_of", index=entry.log_index, size=proof.tree_size, origin=origin
        ),
        "file_digest": sha256(sheet.data).hexdigest(),
    }
    if predicate.supersedes is not None:
        values["supersedes"] = predicate.supersedes
    return {texts.of("report", name): value for name, value in values.items()}


def _parameters(predicate: Predicate) -> Mapping[str, str]:
    """Return the parameters, with each attempt on its own line, and what made none after it."""
    parameters = predicate.method.parameters
    if not (attempts := read_escalation(parameters)):
        return parameters
    own = {name: v for name, v in parameters.items() if name not in (ATTEMPT, ATTEMPTS)}
    certified = f"{parameters.get(NAMED, predicate.method.id)}: {predicate.result}"
    own[f"attempt {certified_number(parameters)}"] = certified
    label = "attempt 1, before"
    for one in attempts:
        if one.number is not None:
            own[f"attempt {one.number}"] = spelled(one)
            label = f"attempt {one.number}, then"
        else:
            own[label] = "; ".join([*([own[label]] if label in own else []), spelled(one)])
    return own


def curves(predicate: Predicate) -> list[tuple[str, AttackCurve]]:
    """Return the ROC curves that a certificate states, by attack name.

    The curves of failed attempts follow its own, labelled with method and result.
    """
    found = [(one.name, "", one.value) for one in predicate.checks]
    for attempt in read_escalation(predicate.method.parameters):
        how = f" ({attempt.method}, {attempt.result})"
        found += [(one.name, how, one.value) for one in attempt.checks]
    drawn = [
        (f"{name.removesuffix(SUFFIX)}{how}", parse(value))
        for name, how, value in found
        if name.endswith(SUFFIX)
    ]
    return [(name, curve) for name, curve in drawn if curve is not None]


def curve_plots(
    drawn: Sequence[tuple[str, AttackCurve]], texts: Texts
) -> list[tuple[str, Markup]]:
    """Return the plots of curves, by attack name."""
    axes = texts.of("report", "false_rate"), texts.of("report", "true_rate")
    return [
        (name, curve_svg(curve, texts.of("report", "curve_of", name=name), *axes))
        for name, curve in drawn
    ]


def curve_svg(curve: AttackCurve, title: str, false_rate: str, true_rate: str) -> Markup:
    """Return a plot: the curve after the erasure with its band, and the one before it.

    title: its text alternative; false_rate, true_rate: names of the axes. Colours are
    attributes, for PDF and saved files; a page's style sheet may override them by class.
    """
    lower, upper = curve.band(curve.after)
    bottom, right, middle = TOP + SIZE, LEFT + SIZE, TOP + SIZE / 2
    drawn = [
        _rectangle(),
        _line("limit", ((0, 0), (1, 1)), QUIET, **{"stroke-dasharray": "6 4"}),
        element("polygon", **{**_BAND, "points": _places((*upper, *reversed(lower)))}),
        _line("before", curve.rates(curve.before), QUIET, **_BEFORE),
        _line("series", curve.rates(curve.after), INK, **{"stroke-width": "2"}),
        _text("0", LEFT, bottom + 14),
        _text("1", right, bottom + 14),
        _text(false_rate, LEFT + SIZE / 2, bottom + 30),
        _text("0", LEFT - 8, bottom + 4),
        _text("1", LEFT - 8, TOP + 8),
        _text(true_rate, 14, middle, transform=f"rotate(-90 14 {middle:g})"),
    ]
    own = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {HEIGHT}"}
    return element(
        "svg", drawn, **own, **{"class": "curve", "role": "img", "aria-label": title}
    )


def _rectangle() -> Markup:
    sides = {"x": str(LEFT), "y": str(TOP), "width": str(SIZE), "height": str(SIZE)}
    return element("rect", class_="frame", fill="none", stroke=QUIET, **sides)


def _line(name: str, line: Line, colour: str, **attributes: str) -> Markup:
    own = {"class": name, "points": _places(line), "fill": "none", "stroke": colour}
    return element("polyline", **own, **attributes)


def _places(line: Line) -> str:
    """Return points for SVG, without consecutive duplicates."""
    places = [(round(LEFT + SIZE * x, 1), round(TOP + SIZE * (1 - y), 1)) for x, y in line]
    kept = [places[0], *(b for a, b in pairwise(places) if a != b)]
    return " ".join(f"{x:g},{y:g}" for x, y in kept)


def _text(text: str, x: float, y: float, **attributes: str) -> Markup:
    return element("text", text, x=f"{x:g}", y=f"{y:g}", **_TEXT, **attributes)


def _check_row(check: CheckPart, texts: Texts) -> tuple[Content, ...]:
    value = check.value
    if check.name.endswith(SUFFIX) and parse(value) is not None:
        value = texts.of("report", "curve_below")
    if check.interval is not None:
        low, high = check.interval
        value += f"; {texts.of('report', 'interval', low=low, high=high)}"
    return (
        str(check.number),
        check.name,
        _english(check.quantity),
        value,
        texts.of("report", "reported_only") if check.threshold is None else check.threshold,
        _outcome(check.passed, texts),
    )


def _english(text: str) -> Markup:
    """Mark words of the file, which are English in documents of all languages."""
    return element("span", text, lang="en")


def _outcome(passed: bool, texts: Texts) -> Content:
    word = texts.of("report", "passed" if passed else "failed")
    return word if passed else element("span", word, class_="bad")
