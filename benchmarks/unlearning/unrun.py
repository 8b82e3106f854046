"""Which planned rows have no result in every seed yet, what they take, and their commands.

They are listed in the order in which they are to be run.
"""

from collections.abc import Mapping, Sequence

from benchmarks.unlearning.contenders import (
    CORRECTED,
    FIRST,
    PRINTED,
    REGULAR,
    SPECIAL,
    Contender,
    planned,
    shadowed,
)
from benchmarks.unlearning.effort import Effort, effort, recorded
from benchmarks.unlearning.full_size import HOUR, duration
from benchmarks.unlearning.markdown import NONE, table
from benchmarks.unlearning.records import Records
from benchmarks.unlearning.settings import FULL, SEEDS, SETTINGS, SHADOWED, SHADOWS, Setting
from benchmarks.unlearning.shadow import ATTACKED

BUNDLED = ("digits", "digit-masks")  # data that scikit-learn brings along
BUDGET = 40  # machine hours for all of the page
Lacking = Mapping[int, Sequence[str]]  # labels by seed
PAPERS = (SPECIAL, REGULAR, CORRECTED, PRINTED)  # the papers' algorithms and constants
# What is run first where hours are short, the tables that it completes, and which rows: where
# there are none, all that no line before has.
ORDER: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("cifar-alpha-0.1", "HF-KCU 6", ()),
    ("cifar-alpha-1", "HF-KCU 6 and 7", ()),
    ("cifar-clients-100", "HF-KCU 7", ()),
    ("cifar-clients-200", "HF-KCU 7", ()),
    ("cifar-poisoned", "HF-KCU 3", ()),
    ("cifar-samples-iid", "PUF IV", ()),
    ("cifar-samples", "PUF IV", ()),
    ("cifar-two", "PUF V", ()),
    ("cifar-12000-published", "HF-KCU 4 and 5", ()),
    ("cifar", "PUF III; HF-KCU 1, 4 and 5", ()),
    ("iid", "PUF III", ()),
    ("resnet", "PUF III", ()),
    ("cifar-6000", "PUF III; HF-KCU 1, 2 and 9", PAPERS),
    ("mnist-60000-published", "HF-KCU 1 and 2", PAPERS),
    ("mnist-60000-published", "PUF III; HF-KCU 1 and 2", ()),
    ("cifar-6000", "PUF III; HF-KCU 1, 2 and 9", ()),
    ("cifar-12000", "PUF III; HF-KCU 1, 2 and 9, which `cifar-12000-published` has", ()),
    ("resnet-full", "PUF III; HF-KCU 2", ()),
)
ABOUT = """\
A row counts as run when five seeds have it, or three in the settings `…-published` and in
those of CIFAR-10 with other skews, numbers of clients, the backdoor, half of a client's rows
and two clients. The settings are in
the order in which they are to be run. A command continues where it was stopped, and renews
the page; `DATA` is the folder with `mnist.npz` and `cifar10.npz`. For `resnet-full` add
`--device cuda`.

Rows have the labels that `--methods` takes. `{special}`, `{regular}`, `{corrected}` and
`{printed}` are the papers'. `puf-special`, `puf-regular` and `hf-kcu` are Lethe's guarded ones,
with `one step` in one guarded step. What follows is what a variant changes: `k=10` the
iterations, `causal=gradient` the causal weights to equation 7, `unscaled` leaves out line 17 of
HF-KCU's Algorithm 1.

The budget of this page is {budget} machine hours. Its lines took {took} by their own seconds;
those of the attack with shadow models have none. What missing rows would take is estimated from
the operations of the same methods where they were run. The original and the retrained model of
each seed, which are trained again, are counted, and so is the own training of Exact-Fun, FATS
and SISA. Times are of one thread at the rate of [the papers' sizes](#the-papers-sizes), and of
the GPU by the steps timed there, not by the seconds of its lines. "Total" adds one thread's
hours to those of the lines, row by row. {inside}
"""
SHADOW = (
    "The attack with shadow models (HF-KCU's tables 1 and 9) takes for a seed "
    f"{SHADOWS} trainings of as many rows as the original model has; the original, the "
    "retrained model and the methods are trained again unless their weights are in the cache. "
    "Shadow models need twice as many rows as the original model has, none of them its own. "
    "The 12,000 training rows of the shipped CIFAR-10 file are too few for `cifar-6000` and "
    "`cifar-12000`, whose commands say so and stop; CIFAR-10's 50,000 are enough. Estimates "
    "are as above, of settings without rows left over as if there were some. "
    '"Total" continues after the rows above that are inside the budget.\n'
)


def missing(lacking: Lacking, name: str, *, attack: bool = False) -> list[str]:
    """Return the labels of a setting's plan that some seed lacks, in the plan's order.

    attack: of the lines of the attack with shadow models.
    """
    return [
        label
        for label in _labels(name, attack=attack)
        if any(label in labels for labels in lacking.values())
    ]


def planned_of(setting: Setting, *, attack: bool) -> tuple[Contender, ...]:
    """Return a setting's plan, or what of it is attacked with shadow models."""
    return (shadowed if attack else planned)(setting.plan)


def command(
    setting: Setting, labels: list[str], seeds: Sequence[int] = (), *, attack: bool = False
) -> str:
    """Return the command that measures labels of a setting; all of the plan where all miss.

    seeds: those that lack any, none for all.
    """
    words = ["python -m benchmarks.unlearning", f"--setting {setting.name}"]
    if attack:
        words.append("--shadow")
    if setting.data not in BUNDLED:
        words.append("--data DATA")
    always = {part.label for part in FIRST}  # measured whatever is asked for
    asked = [label for label in labels if label not in always]
    if len(asked) < len(planned_of(setting, attack=attack)):
        words.append(f"--methods '{','.join(asked)}'")
    first, last = (min(seeds), max(seeds)) if seeds else (0, setting.seeds - 1)
    if first:
        words.append(f"--first-seed {first}")
    if last + 1 - first != SEEDS:
        words.append(f"--seeds {last + 1 - first}")
    return " ".join([*words, "--out docs/benchmarks"])


def render(records: Records) -> str:
    """Return the settings with rows that were not run, those rows, and what each takes."""
    total = taken = recorded(records)
    body: list[tuple[str, ...]] = []
    inside: list[str] = []
    outside: list[str] = []
    for name, tables, papers in (*ORDER, *_others()):
        setting = SETTINGS[name]
        lacking = _lacking(records, name, papers)
        if not lacking:
            continue
        needs = effort(records, name, lacking)
        total += needs.here or 0.0
        if needs.here is not None:
            said = f"`{name}` (the papers' algorithms)" if papers else f"`{name}`"
            (inside if total <= BUDGET * HOUR else outside).append(said)
        if total <= BUDGET * HOUR:
            taken = total
        labels = missing(lacking, name)
        body.append(
            (
                f"`{name}`",
                tables,
                _rows(lacking, name),
                *_times(needs, total),
                f"`{command(setting, labels, list(lacking))}`",
            )
        )
    about = ABOUT.format(
        special=SPECIAL,
        regular=REGULAR,
        corrected=CORRECTED,
        printed=PRINTED,
        budget=BUDGET,
        took=f"{recorded(records) / HOUR:.1f} h",
        inside=_inside(inside, outside),
    )
    head = ("setting", "tables", "not run", "one thread", "total", "GPU", "command")
    return f"{about}\n{table(head, body)}\n{SHADOW}\n{_attacks(records, taken)}"


def _inside(inside: Sequence[str], outside: Sequence[str]) -> str:
    """Return which settings' rows the budget allows for."""
    if not inside:
        return f"No row that is missing has a total below {BUDGET} h." if outside else ""
    others = f" Those of {_joined(outside)} exceed the budget." if outside else ""
    return (
        f"The rows of {_joined(inside)}, whose total is below {BUDGET} h, are still to be run."
        f"{others}"
    )


def _times(needs: Effort, total: float) -> tuple[str, str, str]:
    """Return one thread's time, the total of hours, and the GPU's time; – where unknown."""
    return (
        NONE if needs.here is None else duration(needs.here),
        NONE if needs.here is None else f"{total / HOUR:,.0f} h",
        NONE if needs.there is None else duration(needs.there),
    )


def _others() -> list[tuple[str, str, tuple[str, ...]]]:
    ordered = {name for name, *_ in ORDER}
    return [(name, NONE, ()) for name in SETTINGS if name not in {*ordered, "quick"}]


def by_seed(
    records: Records, name: str, *, attack: bool = False, papers: Sequence[str] = ()
) -> dict[int, list[str]]:
    """Return the labels of a setting's plan that each seed lacks, of seeds that lack any.

    attack: of the lines of the attack with shadow models. papers: only these and the models
    that they are compared with.
    """
    labels, key = _labels(name, attack=attack), name + (SHADOWED if attack else "")
    if papers:
        labels = [label for label in labels if label in {*papers, *(o.label for o in FIRST)}]
    found = {
        seed: [label for label in labels if (key, seed, label) not in records]
        for seed in range(SETTINGS[name].seeds)
    }
    return {seed: lacking for seed, lacking in found.items() if lacking}


def _lacking(records: Records, name: str, papers: Sequence[str]) -> dict[int, list[str]]:
    """Return what each seed lacks of one line of ORDER, of seeds that lack any of it."""
    lacking = by_seed(records, name, papers=papers)
    if papers:
        return lacking
    for rows in (rows for one, _, rows in ORDER if one == name and rows):
        earlier = by_seed(records, name, papers=rows)
        for seed, labels in earlier.items():
            lacking[seed] = [label for label in lacking[seed] if label not in labels]
    return {seed: labels for seed, labels in lacking.items() if labels}


def _labels(name: str, *, attack: bool) -> list[str]:
    return [part.label for part in (*FIRST, *planned_of(SETTINGS[name], attack=attack))]


def _rows(lacking: Lacking, name: str, *, attack: bool = False) -> str:
    """Return what a setting lacks, rows of the same seeds together."""
    seeds: dict[tuple[int, ...], list[str]] = {}
    for label in missing(lacking, name, attack=attack):
        key = tuple(seed for seed, labels in lacking.items() if label in labels)
        seeds.setdefault(key, []).append(label)
    every = len(_labels(name, attack=attack))
    parts = []
    for key, labels in seeds.items():
        rows = "all" if len(labels) == every else ", ".join(f"`{label}`" for label in labels)
        parts.append(rows if len(key) == SETTINGS[name].seeds else f"{_span(key)}: {rows}")
    return "; ".join(parts)


def _span(seeds: Sequence[int]) -> str:
    """Return seeds as "seed 2", "seeds 3 and 4" or "seeds 1 to 4"."""
    first, last = seeds[0], seeds[-1]
    if first == last:
        return f"seed {first}"
    if last - first == len(seeds) - 1 > 1:
        return f"seeds {first} to {last}"
    return f"seeds {_joined([str(seed) for seed in seeds])}"


def _joined(words: Sequence[str]) -> str:
    """Return words as "a", "a and b" or "a, b and c"."""
    return " and ".join([*filter(None, [", ".join(words[:-1])]), words[-1]])


def _attacks(records: Records, total: float) -> str:
    """Return where the attack with shadow models was not run, and what it takes.

    total: seconds of one thread that the rows before take. Settings with rows left over come
    first.
    """
    body = []
    for name in sorted(
        (one for one in FULL if one != "quick"), key=lambda one: one not in ATTACKED
    ):
        setting = SETTINGS[name]
        lacking = by_seed(records, name, attack=True)
        if not lacking:
            continue
        needs = effort(records, name, lacking, shadows=SHADOWS)
        total += needs.here or 0.0
        if setting.rows is None:
            left, said = "none: it trains on all", NONE
        else:
            labels = missing(lacking, name, attack=True)
            left = "enough" if name in ATTACKED else "too few in the shipped file"
            said = f"`{command(setting, labels, list(lacking), attack=True)}`"
        rows = _rows(lacking, name, attack=True)
        body.append((f"`{name}`", rows, left, *_times(needs, total), said))
    head = (
        "setting",
        "not attacked",
        "rows left over",
        "one thread",
        "total",
        "GPU",
        "command",
    )
    return table(head, body)
