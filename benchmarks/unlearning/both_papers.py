"""The tables of both papers in their order, each over the settings that stand for theirs."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.unlearning import kcu_ablations, kcu_tables, puf_tables
from benchmarks.unlearning.settings import FULL, SETTINGS
from benchmarks.unlearning.summary import Seeds
from workers.training.networks.registry import network
from workers.training.networks.weights import count

TABLE3 = (*FULL, "iid", "resnet-full", "resnet")
TABLE4 = ("cifar-samples-iid", "samples-iid", "cifar-samples", "samples")
TABLE5 = ("cifar-two", "two")
# Of the settings of Table 2 the paper's row of the same data or network.
KCU2: Mapping[str, str] = {
    "mnist-60000-published": "MNIST",
    "mnist": "MNIST",
    "vit": "CIFAR-10 (ViT-Lite)",
    "resnet-full": "CIFAR-10 (ResNet-18)",
    "resnet": "CIFAR-10 (ResNet-18)",
    **dict.fromkeys(
        ("cifar-12000-published", "cifar-12000", "cifar-6000", "cifar", "digits"), ""
    ),
}
SMALL = {"channels": 1, "height": 8, "width": 8, "classes": 10}  # digits
COLOUR = {"channels": 3, "height": 32, "width": 32, "classes": 10}  # CIFAR-10
HALVED = {**COLOUR, "height": 16, "width": 16}
SIZES: tuple[tuple[str, str, Mapping[str, int]], ...] = (
    ("cifar-12000-published", "SimpleCNN", COLOUR),
    ("resnet", "ResNet-18", HALVED),
    ("vit", "ViT-Lite", SMALL),
)
SKEWS = (
    (("cifar-alpha-0.1", "cifar", "cifar-alpha-1"), "CIFAR-10"),
    (("digits", "alpha-0.5", "alpha-1"), "digits"),
)
CLIENTS = (
    (("cifar-alpha-1", "cifar-clients-100", "cifar-clients-200"), "CIFAR-10"),
    (("clients-10", "clients-100", "clients-200"), "digits"),
)
SKEW = {0.1: "highly", 0.5: "moderately", 1.0: "mildly"}  # as HF-KCU's table 6 calls them
NOISE = (
    '"Seed noise": the gap on its left, of two retrainings that differ only in their seed; '
    '"–": no second retraining was measured.\n'
)
Known = Mapping[str, Seeds]
# Of Tables 4 and 5: Lethe's variants beside the paper's algorithm, or that alone.
Forms = Sequence[tuple[str | None, str]]
FORMS: Forms = ((kcu_ablations.CYCLES, "cycles"), (kcu_ablations.ONE_STEP, "one step"))
OWN: Forms = ((None, "the paper's constants"),)


def puf(known: Known) -> str:
    """Return PUF's Tables III to VI, with what of them was not run."""
    text = "## PUF, Table III: one client leaves\n"
    for name in _listed(TABLE3, known):
        found = puf_tables.client_table(_of(known, name), "PUF III", puf_tables.TABLE3)
        text += f"\n### {SETTINGS[name].about}\n\n{found}"
    text += "\n## PUF, Table IV: half of one client's rows leave\n"
    for name in TABLE4:
        found = puf_tables.client_table(_of(known, name), "PUF IV", puf_tables.TABLE4)
        text += f"\n### {SETTINGS[name].about}\n\n{found}"
    text += "\n## PUF, Table V: two clients leave\n"
    for name in TABLE5:
        found = puf_tables.client_table(_of(known, name), "PUF V", puf_tables.TABLE5)
        text += f"\n### {SETTINGS[name].about}\n\n{found}"
    found = puf_tables.segmentation_table(_of(known, "masks"))
    text += f"\n## PUF, Table VI: segmentation\n\n{found}"
    return (
        f"{text}\n## PUF: settings of its tables that were not run\n\n{puf_tables.elsewhere()}"
    )


def hf_kcu(known: Known, attacked: Known) -> str:
    """Return HF-KCU's Tables 1 to 9, with what of them was not run.

    attacked: by setting the lines of the attack with shadow models, for Tables 1 and 9.
    """
    text = ""
    for name in _listed(FULL, known):
        main = kcu_tables.table1(_of(known, name), _of(attacked, name))
        text += f"## HF-KCU, Table 1: {name}\n\n{main}\n"
    found = [(SETTINGS[name].about, row, _of(known, name)) for name, row in KCU2.items()]
    text += (
        f"## HF-KCU, Table 2: data sets and networks\n\n{kcu_tables.table2(found)}\n{NOISE}\n"
    )
    for name, title in (("cifar-poisoned", "CIFAR-10"), ("poisoned", "digits")):
        backdoor = kcu_tables.table3(_of(known, name))
        text += f"## HF-KCU, Table 3: backdoor, {title}\n\n{backdoor}\n"
    text += _ablations("Table 4: components", kcu_ablations.table4, known)
    text += _ablations("Table 5: damping", kcu_ablations.table5, known)
    for names, title in SKEWS:
        alphas = [
            (f"{alpha:g} ({said} non-IID)", f"{alpha:g}", _of(known, name))
            for name in names
            if (alpha := SETTINGS[name].alpha) and (said := SKEW[alpha])
        ]
        swept = kcu_tables.sweep("α", "HF-KCU 6", alphas)
        text += f"## HF-KCU, Table 6: skew, {title}\n\n{swept}\n{NOISE}\n"
    for names, title in CLIENTS:
        clients = [
            (str(SETTINGS[name].clients), str(SETTINGS[name].clients), _of(known, name))
            for name in names
        ]
        swept = kcu_tables.sweep("clients", "HF-KCU 7", clients)
        text += f"## HF-KCU, Table 7: clients, {title}\n\n{swept}\n{NOISE}\n"
    sized = [(title, size_of(name, shape), _of(known, name)) for name, title, shape in SIZES]
    text += f"## HF-KCU, Table 8: size of the model\n\n{kcu_tables.table8(sized)}\n"
    both = [(_of(known, name), _of(attacked, name)) for name in _listed(FULL, known)]
    outputs = kcu_tables.table9(both)
    text += f"## HF-KCU, Table 9: outputs\n\n{outputs}\n"
    return text


def _listed(names: Sequence[str], known: Known) -> list[str]:
    """Return settings in their order; the short one only where it is what was run."""
    return [name for name in names if name != "quick" or name in known]


def _of(known: Known, name: str) -> Seeds:
    """Return a setting's results, none where it was not run."""
    return known.get(name, Seeds(name, {}))


def _ablations(title: str, render: Callable[[Seeds, str | None], str], known: Known) -> str:
    """Return a table for each setting and form that has a variant.

    With HF-KCU's own training there is the paper's algorithm alone.
    """
    text = ""
    for name in (*FULL, "two"):
        for form, said in OWN if SETTINGS[name].plan == "published" else FORMS:
            found = render(known[name], form) if name in known else ""
            if found:
                text += f"## HF-KCU, {title}, {said}: {name}\n\n{found}\n"
    return text


def size_of(name: str, shape: Mapping[str, int]) -> int:
    """Return the number of parameters of a setting's network for a shape of its data."""
    setting = SETTINGS[name]
    return count(network(setting.network, {**shape, **dict(setting.shape)}))
