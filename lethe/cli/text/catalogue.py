"""The catalogue as Markdown: the names in certificates and the log.

Source of docs/catalogue.md.
"""

from collections.abc import Iterator

from lethe.catalogue import (
    ATTACKS,
    BOUNDS,
    CHECKS,
    CHECKS_OF,
    EVENTS,
    METHODS,
    VERIFIERS,
    CheckSpec,
    Event,
)

HEAD = """# Catalogue

What requests, certificates and the log name. `lethe certificate catalogue` prints this page;
its source is `lethe/catalogue.py`."""


def catalogue_lines() -> Iterator[str]:
    """Yield the page line by line."""
    yield from HEAD.splitlines()
    yield from ("", "## Methods", "")
    yield from _table("method", "model", "what it does")
    for method in METHODS.values():
        yield _row(f"`{method.name}`", method.model, method.meaning)
    yield from ("", "## Verifiers", "")
    yield from _table("guarantee class", "version")
    for name, version in VERIFIERS.items():
        yield _row(f"`{name}`", version)
    yield from ("", "## Bounds", "")
    yield from _table("bound", "what it is")
    for name, meaning in BOUNDS.items():
        yield _row(f"`{name}`", meaning)
    yield from ("", "## Checks", "")
    yield f"`*` is the name of an attack: {', '.join(f'`{name}`' for name in ATTACKS)}."
    yield "In `distance:*-accuracy` it is `forget`, `retained` or `test`."
    yield from ("", *_table("check", "value", "threshold", "criterion"))
    for check in CHECKS.values():
        yield _row(
            f"`{check.name}`",
            check.quantity,
            check.threshold or "none: reported only",
            check.wording,
        )
    yield from ("", "## Recheck of models of tables", "")
    yield "What `lethe certificate recheck` does with each check of these families:"
    yield from ("", "- repeated: computes it again from the files named;")
    yield "- digest: compares its digest or counts with evidence and certificate;"
    yield "- service: only the service can run it."
    yield from ("", "A script has `re-execution` or, if its runs differ, `rerun-difference`.")
    yield from ("", *_table("check", *CHECKS_OF, "repeated from, or lacking"))
    for name in dict.fromkeys(name for names in CHECKS_OF.values() for name in names):
        spec = CHECKS[name]
        cells = (_recheck(spec) if name in names else "" for names in CHECKS_OF.values())
        yield _row(f"`{name}`", *cells, spec.rechecked or spec.needs)
    yield from ("", "## Log events", "")
    yield "A leaf only commits to the payload of a request or hold; the payload of a model is"
    yield "SHA-256 digests by name, and that of a key or a retention is in the leaf itself."
    yield from ("", *_table("event", "about", "meaning", "payload"))
    for event in EVENTS.values():
        yield _row(f"`{event.name}`", event.about, event.meaning, _fields(event))


def _table(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield f"|{'---|' * len(names)}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _recheck(spec: CheckSpec) -> str:
    if spec.rechecked:
        return "repeated"
    return "digest" if spec.names or spec.name == "retained-set" else "service"


def _fields(event: Event) -> str:
    if event.about != "request":
        return ", ".join(f"`{name}`" for name in event.payload)
    return ", ".join(f"`{name}` ({kind.__name__})" for name, kind in event.payload.items())
