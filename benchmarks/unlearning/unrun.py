"""Which planned rows have no result in every seed yet, what they take, and their commands.

They are listed in the order in which they are to be run.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.unlearning.contenders import FIRST, ORIGINAL, Contender, planned, shadowed
from benchmarks.unlearning.effort import effort, recorded
from benchmarks.unlearning.full_size import duration
from benchmarks.unlearning.markdown import NONE, table
from benchmarks.unlearning.records import Records
from benchmarks.unlearning.settings import FULL, SEEDS, SETTINGS, SHADOWED, SHADOWS, Setting
from benchmarks.unlearning.shadow import ATTACKED

BUNDLED = ("digits", "digit-masks")  # data that scikit-learn brings along
BUDGET = 40  # machine hours for all of the page
# What is run first where hours are short, and the tables that it completes.
ORDER: Mapping[str, str] = {
    "cifar-alpha-0.1": "HF-KCU 6",
    "cifar-alpha-1": "HF-KCU 6 and 7",
    "cifar-clients-100": "HF-KCU 7",
    "cifar-clients-200": "HF-KCU 7",
    "cifar-poisoned": "HF-KCU 3",
    "cifar": "PUF III; HF-KCU 1, 4 and 5",
    "iid": "PUF III",
    "resnet": "PUF III",
    "mnist-60000-published": "PUF III; HF-KCU 1 and 2",
    "cifar-6000": "PUF III; HF-KCU 1, 2 and 9",
    "cifar-12000": "PUF III; HF-KCU 1, 2 and 9, which `cifar-12000-published` has",
    "resnet-full": "PUF III; HF-KCU 2",
}
ABOUT = """\
A row counts as run when five seeds have it, or three in the settings `…-published` and in
those of CIFAR-10 with other skews, numbers of clients and the backdoor. The settings are in
the order in which they are to be run. A command continues where it was stopped, and renews
the page; `DATA` is the folder with `mnist.npz` and `cifar10.npz`. For `resnet-full` add
`--device cuda`.

The budget of this page is {budget} machine hours. Its lines took {took} by their own seconds;
those of the attack with shadow models have none. What missing rows would take is estimated from
the operations of the same methods where they were run, with the original and the retrained
model of each seed trained again: on one thread at the rate of
[the papers' sizes](#the-papers-sizes), on the GPU in the steps timed there. "Total" adds one
thread's hours to those of the lines, row by row.
"""
SHADOW = (
    "The attack with shadow models (HF-KCU's tables 1 and 9) takes for a seed "
    f"{SHADOWS} trainings of as many rows as the original model has; the original, the "
    "retrained model and the methods are trained again unless their weights are in the cache. "
    "Shadow models need twice as many rows as the original model has, none of them its own. "
    "The 12,000 training rows of the shipped CIFAR-10 file are too few for `cifar-6000` and "
    "`cifar-12000`, whose commands say so and stop; CIFAR-10's 50,000 are enough.\n"
)


def missing(records: Records, name: str, *, attack: bool = False) -> list[str]:
    """Return the labels of a setting's plan that too few seeds have, in order.

    attack: of the lines of the attack with shadow models.
    """
    plan = planned_of(SETTINGS[name], attack=attack)
    key, seeds = name + (SHADOWED if attack else ""), range(SETTINGS[name].seeds)
    return [
        part.label
        for part in (*FIRST, *plan)
        if any((key, seed, part.label) not in records for seed in seeds)
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
    body, total = [], recorded(records)
    about = ABOUT.format(budget=BUDGET, took=f"{total / 3600:.1f} h")
    for name in (*ORDER, *(one for one in SETTINGS if one not in (*ORDER, "quick"))):
        setting = SETTINGS[name]
        labels = missing(records, name)
        if not labels:
            continue
        lacking = by_seed(records, name)
        needs = effort(records, name, lacking)
        total += needs.here or 0.0
        body.append(
            (
                f"`{name}`",
                ORDER.get(name, NONE),
                _rows(records, name),
                NONE if needs.here is None else duration(needs.here),
                NONE if needs.here is None else f"{total / 3600:,.0f} h",
                NONE if needs.there is None else duration(needs.there),
                f"`{command(setting, labels, list(lacking))}`",
            )
        )
    head = ("setting", "tables", "not run", "one thread", "total", "GPU", "command")
    return f"{about}\n{table(head, body)}\n{SHADOW}\n{_attacks(records)}"


def by_seed(records: Records, name: str) -> dict[int, list[str]]:
    """Return the labels of a setting's plan that each seed lacks, of seeds that lack any."""
    setting = SETTINGS[name]
    labels = [part.label for part in (*FIRST, *planned(setting.plan))]
    found = {
        seed: [label for label in labels if (name, seed, label) not in records]
        for seed in range(setting.seeds)
    }
    return {seed: lacking for seed, lacking in found.items() if lacking}


def _rows(records: Records, name: str) -> str:
    """Return what a setting lacks, rows of the same seeds together."""
    setting = SETTINGS[name]
    lacking = by_seed(records, name)
    seeds: dict[tuple[int, ...], list[str]] = {}
    for label in missing(records, name):
        key = tuple(seed for seed, labels in lacking.items() if label in labels)
        seeds.setdefault(key, []).append(label)
    every = len(FIRST) + len(planned(setting.plan))
    parts = []
    for key, labels in seeds.items():
        rows = "all" if len(labels) == every else ", ".join(f"`{label}`" for label in labels)
        parts.append(rows if len(key) == setting.seeds else f"{_span(key)}: {rows}")
    return "; ".join(parts)


def _span(seeds: Sequence[int]) -> str:
    """Return seeds as "seed 2", "seeds 3 and 4" or "seeds 1 to 4"."""
    first, last = seeds[0], seeds[-1]
    if first == last:
        return f"seed {first}"
    if last - first == len(seeds) - 1 > 1:
        return f"seeds {first} to {last}"
    return f"seeds {', '.join(map(str, seeds[:-1]))} and {last}"


def _attacks(records: Records) -> str:
    """Return where the attack with shadow models was not run, and what it takes."""
    body = []
    for name in FULL:
        labels = missing(records, name, attack=True) if name != "quick" else []
        if not labels:
            continue
        whole = len(labels) == len(FIRST) + len(shadowed(SETTINGS[name].plan))
        rows = "all" if whole else ", ".join(f"`{label}`" for label in labels)
        took = [
            record.cost["seconds"]
            for (other, _, label), record in records.items()
            if other == name and label == ORIGINAL
        ]
        one = duration(median(took)) if took else NONE
        setting = SETTINGS[name]
        if setting.rows is None:
            left, said = "none: it trains on all", NONE
        else:
            left = "enough" if name in ATTACKED else "too few in the shipped file"
            said = f"`{command(setting, labels, attack=True)}`"
        body.append((f"`{name}`", rows, left, one, said))
    head = ("setting", "not attacked", "rows left over", "one training, as recorded", "command")
    return table(head, body)
