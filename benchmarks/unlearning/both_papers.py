"""The tables of both papers in their order, each over the settings that stand for theirs."""

from collections.abc import Callable, Mapping

from benchmarks.unlearning import kcu_ablations, kcu_tables, puf_tables
from benchmarks.unlearning.settings import FULL, SETTINGS
from benchmarks.unlearning.summary import Seeds
from workers.training.networks.registry import network
from workers.training.networks.weights import count

TABLE3 = (*FULL, "iid", "resnet-full", "resnet")
TABLE4 = (
    ("samples-iid", "## PUF, Table IV: half of the rows leave, IID"),
    ("samples", "## PUF, Table IV: half of the rows leave, not IID"),
)
KCU2 = ("mnist", "vit", "resnet", "cifar-full", "cifar-6000", "cifar", "digits", "quick")
SMALL = {"channels": 1, "height": 8, "width": 8, "classes": 10}
SIZES: tuple[tuple[str, str, Mapping[str, int]], ...] = (
    ("digits", "SimpleCNN", SMALL),
    ("resnet", "ResNet-18", {}),
    ("vit", "ViT-Lite", SMALL),
)
SKEW = {0.1: "highly", 0.5: "moderately", 1.0: "mildly"}  # as HF-KCU's table 6 calls them
NOISE = (
    '"Seed noise" is the gap on its left between two retrainings that differ in their seed '
    'alone; "–": no second retraining was measured.\n'
)
Known = Mapping[str, Seeds]


def puf(known: Known) -> str:
    """Return PUF's Tables III to VI of what was measured."""
    text = "## PUF, Table III: one client leaves\n"
    for name in TABLE3:
        if name in known:
            text += f"\n### {SETTINGS[name].about}\n\n{puf_tables.client_table(known[name])}"
    for name, title in TABLE4:
        if name in known:
            text += f"\n{title}\n\n{puf_tables.client_table(known[name], puf_tables.TABLE4)}"
    if "two" in known:
        found = puf_tables.client_table(known["two"], puf_tables.TABLE5)
        text += f"\n## PUF, Table V: two clients leave\n\n{found}"
    if "masks" in known:
        found = puf_tables.segmentation_table(known["masks"])
        text += f"\n## PUF, Table VI: segmentation\n\n{found}"
    return text


def hf_kcu(known: Known) -> str:
    """Return HF-KCU's Tables 1 to 8 of what was measured."""
    text = ""
    for name in FULL:
        if name in known:
            text += f"## HF-KCU, Table 1: {name}\n\n{kcu_tables.table1(known[name])}\n"
    found = [(SETTINGS[name].about, known[name]) for name in KCU2 if name in known]
    text += (
        f"## HF-KCU, Table 2: data sets and networks\n\n{kcu_tables.table2(found)}\n{NOISE}\n"
    )
    if "poisoned" in known:
        text += f"## HF-KCU, Table 3: backdoor\n\n{kcu_tables.table3(known['poisoned'])}\n"
    text += _ablations("Table 4: components", kcu_ablations.table4, known)
    text += _ablations("Table 5: damping", kcu_ablations.table5, known)
    alphas = [
        (f"{alpha:g} ({said} non-IID)", known[name])
        for name in ("digits", "alpha-0.5", "alpha-1")
        if name in known and (alpha := SETTINGS[name].alpha) and (said := SKEW[alpha])
    ]
    if alphas:
        text += f"## HF-KCU, Table 6: skew\n\n{kcu_tables.sweep('α', alphas)}\n{NOISE}\n"
    clients = [
        (str(SETTINGS[name].clients), known[name])
        for name in ("clients-10", "clients-100", "clients-200")
        if name in known
    ]
    if clients:
        swept = kcu_tables.sweep("clients", clients)
        text += f"## HF-KCU, Table 7: clients\n\n{swept}\n{NOISE}\n"
    sized = [
        (title, _size(name, shape), known[name])
        for name, title, shape in SIZES
        if name in known
    ]
    if sized:
        text += f"## HF-KCU, Table 8: size of the model\n\n{kcu_tables.table8(sized)}\n"
    return text


def _ablations(title: str, render: Callable[[Seeds, str], str], known: Known) -> str:
    """Return a table for each setting and form that has a variant."""
    text = ""
    for name in (*FULL, "two"):
        for form, said in (
            (kcu_ablations.CYCLES, "cycles"),
            (kcu_ablations.ONE_STEP, "one step"),
        ):
            found = render(known[name], form) if name in known else ""
            if found:
                text += f"## HF-KCU, {title}, {said}: {name}\n\n{found}\n"
    return text


def _size(name: str, shape: Mapping[str, int]) -> int:
    setting = SETTINGS[name]
    return count(network(setting.network, {**shape, **dict(setting.shape)}))
