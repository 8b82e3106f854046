"""Results as the generated part of a page, between two markers that keep the prose."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.unlearning import (
    claims,
    full_size,
    machines,
    measures,
    pareto,
    targets,
    unrun,
)
from benchmarks.unlearning.both_papers import hf_kcu, puf
from benchmarks.unlearning.plots import draw
from benchmarks.unlearning.records import Records
from benchmarks.unlearning.settings import FULL, SEEDS, SETTINGS, SHADOWED
from benchmarks.unlearning.summary import Seeds, of

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
CLOSE = (
    "Δ: absolute difference from the retrained model of the same seed, in points. "
    '"Retrain, another seed" shows the seed noise, by which two retrainings differ. ±: 95 % '
    "interval over seeds. Names in `type` are [labels](#rows-that-were-not-run)."
)
TOOK = "×: how many times cheaper than retraining; by formula, as the papers compute it."


def write_page(records: Records, out: Path) -> list[str]:
    """Draw the figures and replace what stands between the markers; return the files."""
    pictures = []
    for name in FULL:
        seeds = of(records, name)
        if seeds.seeds:
            picture = f"unlearning-{name}.png"
            draw(seeds, name, out / picture)
            pictures.append(picture)
    page = out / "unlearning.md"
    text = page.read_text() if page.exists() else f"# Unlearning benchmarks\n\n{BEGIN}\n{END}\n"
    before, _, after = parts(text, page.name)
    page.write_text(f"{before}{BEGIN}{generated(records)}{END}{after}")
    return [page.name, *pictures]


def parts(text: str, name: str) -> tuple[str, str, str]:
    """Return what stands before, between and behind the markers.

    Raises ValueError if a marker is missing; `name` is the page's, for the message.
    """
    before, found, rest = text.partition(BEGIN)
    between, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"{name} has no markers {BEGIN} and {END}")
    return before, between, after


def generated(records: Records) -> str:
    """Return what stands between the markers."""
    return f"\n\n{render(records)}\n"


def render(records: Records) -> str:
    """Return Markdown of everything measured."""
    all_seeds = {name: of(records, name) for name in SETTINGS}
    known = {name: seeds for name, seeds in all_seeds.items() if seeds.seeds}
    full = [name for name in FULL if name in known]
    text = [_settings(known), f"## Where it was measured\n\n{machines.render(records)}"]
    text.append(f"## Rows that were not run\n\n{unrun.render(records)}")
    text.append(f"## The papers' sizes\n\n{full_size.render(records)}")
    text += [
        f"## Targets, seed by seed: {name}\n\n{targets.render(known[name])}" for name in full
    ]
    text += [_pareto(name, known[name]) for name in full]
    text.append(f"## The papers' claims\n\n{claims.render(known)}")
    attacked = {name: of(records, name + SHADOWED) for name in SETTINGS}
    text += [puf(known), hf_kcu(known, attacked)]
    text += [_measures(name, known[name]) for name in [*full, *sorted(set(known) - set(full))]]
    return "\n".join(text)


def _settings(known: Mapping[str, Seeds]) -> str:
    lines = []
    for name, seeds in known.items():
        number = len(seeds.seeds)
        few = "" if number >= SEEDS else f", fewer than {SEEDS}: mind the intervals"
        said = f"{number} {'seed' if number == 1 else 'seeds'}{few}"
        lines.append(f"- `{name}`: {SETTINGS[name].about}; {said}.")
    return "\n".join(["## Settings measured", "", *lines, ""])


def _pareto(name: str, seeds: Seeds) -> str:
    return (
        f"## Pareto front: {name}\n\n{pareto.render(seeds)}\n"
        f"![Compute of each method against its gap in forget accuracy on {name}]"
        f"(unlearning-{name}.png)\n"
    )


def _measures(name: str, seeds: Seeds) -> str:
    dice = SETTINGS[name].data == "digit-masks"
    return (
        f"## Every measure: {name}\n\n{SETTINGS[name].about}. {CLOSE}\n\n"
        f"{measures.closeness(seeds, 'Dice' if dice else 'acc.')}\n"
        f"{TOOK}\n\n{measures.expense(seeds)}"
    )
