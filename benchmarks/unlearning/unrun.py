"""Which planned rows have no result in every seed yet, and the commands that measure them."""

from benchmarks.unlearning.contenders import FIRST, planned
from benchmarks.unlearning.markdown import table
from benchmarks.unlearning.records import Records
from benchmarks.unlearning.settings import SEEDS, SETTINGS, Setting

BUNDLED = ("digits", "digit-masks")  # data that scikit-learn brings along
ABOUT = (
    "A row is run when five seeds have it, of the settings `…-published` three. A command "
    "continues where it was stopped and writes the page anew; `DATA` is the folder with "
    "`mnist.npz` and `cifar10.npz`. For `resnet-full` add `--device cuda`.\n"
)


def missing(records: Records, name: str) -> list[str]:
    """Return the labels of a setting's plan that too few seeds have, in order."""
    wanted = (*FIRST, *planned(SETTINGS[name].plan))
    seeds = range(SETTINGS[name].seeds)
    return [
        part.label
        for part in wanted
        if any((name, seed, part.label) not in records for seed in seeds)
    ]


def command(setting: Setting, labels: list[str]) -> str:
    """Return the command that measures labels of a setting; all of the plan where all miss."""
    words = ["python -m benchmarks.unlearning", f"--setting {setting.name}"]
    if setting.data not in BUNDLED:
        words.append("--data DATA")
    first = {part.label for part in FIRST}  # measured whatever is asked for
    asked = [label for label in labels if label not in first]
    if len(asked) < len(planned(setting.plan)):
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
    return f"{ABOUT}\n{table(('setting', 'not run', 'command'), body)}"
