"""The red-team table as Markdown, between two markers that keep the prose of the page."""

from collections.abc import Iterable
from pathlib import Path

from benchmarks.soundness.providers import ABOUT
from benchmarks.soundness.rates import Rate
from benchmarks.soundness.results import SoundnessResults, lines

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
REASONS = 3  # checks named in a line of the table


def write_page(results: SoundnessResults, page: Path) -> None:
    """Replace what stands between the markers of a page, or start one.

    Raises ValueError for a page without them.
    """
    text = page.read_text() if page.exists() else f"# Soundness\n\n{BEGIN}\n{END}\n"
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"{page.name} has no markers {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{render(results)}\n{END}{after}")


def render(results: SoundnessResults) -> str:
    """Return Markdown of everything measured."""
    size = "a quick run" if results.quick else "full"
    parts = [f"Run: {size}. {', '.join(results.machine.values())}.\n", _claims(results)]
    kinds = dict.fromkeys((rate.guarantee, rate.setting) for rate in results.rates)
    for guarantee, setting in kinds:
        mine = [r for r in results.rates if (r.guarantee, r.setting) == (guarantee, setting)]
        parts.append(_section(guarantee, setting, mine, results))
    parts.append(_costs(results))
    parts.append(_providers())
    return "\n".join(parts)


def _claims(results: SoundnessResults) -> str:
    body = [
        (line.name, f"{line.value:.4g}", line.target, "met" if line.met else "**not met**")
        for line in lines(results)
    ]
    return table(("claim", "measured", "target", ""), body)


def _section(guarantee: str, setting: str, rates: list[Rate], results: SoundnessResults) -> str:
    title = f"## `{guarantee}`: {setting}\n\n"
    if guarantee == "empirical-approximate":
        power = "has power" if setting in results.powerful else "has no power"
        if setting in results.edge:
            power = "is at the edge of power"
        title += (
            f"This setting {power}: forget rows are at least {results.gap(setting):.1f} points "
            "more accurate than unseen ones.\n\n"
        )
    head = (
        "provider",
        "trials",
        "accepted",
        "95 % interval",
        "models",
        "ever accepted",
        "verdicts",
        "refused by",
    )
    return title + table(head, [_line(rate) for rate in rates])


def _line(rate: Rate) -> tuple[str, ...]:
    low, high = rate.interval
    verdicts = ", ".join(f"{count} {name}" for name, count in rate.verdicts.items() if count)
    reasons = list(rate.refused_by)
    named = ", ".join(reasons[:REASONS]) + (" …" if len(reasons) > REASONS else "")
    name = f"{rate.provider} (honest)" if rate.honest else rate.provider
    return (
        name,
        f"{rate.trials:,}",
        _percent(rate.accepted),
        f"{_percent(low)} to {_percent(high)}",
        f"{rate.blocks:,}",
        f"{rate.ever:,}",
        verdicts,
        named or "–",
    )


def _costs(results: SoundnessResults) -> str:
    body = [
        (
            cost.what,
            cost.beside,
            f"{cost.ratio:.3g}",
            "–" if cost.wall is None else f"{cost.wall:.3g}",
            "–" if cost.target is None else f"below {cost.target:g}",
        )
        for cost in results.costs
    ]
    head = ("verdict", "beside", "ratio", "ratio of elapsed time", "target")
    return "## What a verdict costs\n\n" + table(head, body)


def _providers() -> str:
    body = [(name, about) for name, about in ABOUT.items()]
    return "## The providers\n\n" + table(("name", "what it does"), body)


def _percent(share: float) -> str:
    """Return a share in percent, with more digits where it is small."""
    return (
        f"{100 * share:.1f} %" if share in (0, 1) or share >= 0.01 else f"{100 * share:.2g} %"
    )


def table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    names = list(head)
    rows = [names, ["---"] * len(names), *(list(row) for row in body)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
