"""Which planned rows have no result in every seed yet, and the commands that measure them."""

from statistics import median

from benchmarks.unlearning.contenders import FIRST, ORIGINAL, Contender, planned, shadowed
from benchmarks.unlearning.full_size import duration
from benchmarks.unlearning.markdown import NONE, table
from benchmarks.unlearning.records import Records
from benchmarks.unlearning.settings import FULL, SEEDS, SETTINGS, SHADOWED, SHADOWS, Setting
from benchmarks.unlearning.shadow import ATTACKED

BUNDLED = ("digits", "digit-masks")  # data that scikit-learn brings along
ABOUT = (
    "A row is run when five seeds have it; three are enough of the settings `…-published` and "
    "of CIFAR-10's other skews, numbers of clients and backdoor. A command continues where it "
    "was stopped and writes the page anew; `DATA` is the folder with `mnist.npz` and "
    "`cifar10.npz`. For `resnet-full` add `--device cuda`.\n"
)
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


def command(setting: Setting, labels: list[str], *, attack: bool = False) -> str:
    """Return the command that measures labels of a setting; all of the plan where all miss."""
    words = ["python -m benchmarks.unlearning", f"--setting {setting.name}"]
    if attack:
        words.append("--shadow")
    if setting.data not in BUNDLED:
        words.append("--data DATA")
    first = {part.label for part in FIRST}  # measured whatever is asked for
    asked = [label for label in labels if label not in first]
    if len(asked) < len(planned_of(setting, attack=attack)):
        words.append(f"--methods '{','.join(asked)}'")
    if setting.seeds != SEEDS:
        words.append(f"--seeds {setting.seeds}")
    return " ".join([*words, "--out docs/benchmarks"])


def render(records: Records) -> str:
    """Return the settings with rows that were not run, those rows, and the command of each."""
    body = []
    for name, setting in SETTINGS.items():
        labels = missing(records, name) if name != "quick" else []
        if not labels:
            continue
        whole = len(labels) == len(FIRST) + len(planned(setting.plan))
        rows = "all" if whole else ", ".join(f"`{label}`" for label in labels)
        body.append((f"`{name}`", rows, f"`{command(setting, labels)}`"))
    found = f"{ABOUT}\n{table(('setting', 'not run', 'command'), body)}"
    return f"{found}\n{SHADOW}\n{_attacks(records)}"


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
