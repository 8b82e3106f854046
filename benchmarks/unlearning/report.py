"""Results as the generated part of a page, between two markers that keep the prose."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.unlearning import claims, kcu_tables, puf_tables, targets
from benchmarks.unlearning.plots import draw
from benchmarks.unlearning.records import Records
from benchmarks.unlearning.settings import SETTINGS
from benchmarks.unlearning.summary import Seeds, of
from workers.networks.registry import network
from workers.networks.weights import count

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
# Judged, drawn and listed in full, the main setting first.
FULL = ("cifar-full", "cifar-6000", "cifar", "mnist", "digits", "quick")
TABLE3 = (*FULL, "iid", "resnet-full", "resnet")
SMALL = {"channels": 1, "height": 8, "width": 8, "classes": 10}
SIZES: tuple[tuple[str, str, Mapping[str, int]], ...] = (
    ("digits", "SimpleCNN", SMALL),
    ("vit", "ViT-Lite", SMALL),
    ("resnet", "ResNet-18", {}),
)


def write_page(records: Records, machine: Mapping[str, str], out: Path) -> list[str]:
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
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"{page.name} has no markers {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{render(records, machine)}\n{END}{after}")
    return [page.name, *pictures]


def render(records: Records, machine: Mapping[str, str]) -> str:
    """Return Markdown of everything measured."""
    all_seeds = {name: of(records, name) for name in SETTINGS}
    known = {name: seeds for name, seeds in all_seeds.items() if seeds.seeds}
    parts = [_settings(known, machine)]
    for name in FULL:
        if name in known:
            parts.append(f"## Targets, seed by seed: {name}\n\n{targets.render(known[name])}")
    judged = [(name, known[name]) for name in (*FULL, "poisoned") if name in known]
    parts.append(f"## The papers' claims\n\n{claims.render(judged)}")
    parts.append(_puf(known))
    parts.append(_kcu(known))
    for name in FULL:
        if name in known:
            parts.append(
                f"## Every method: {name}\n\n{puf_tables.every_method(known[name])}\n"
                f"![Compute of each method against its gap in forget accuracy on {name}]"
                f"(unlearning-{name}.png)\n"
            )
    return "\n".join(parts)


def _settings(known: Mapping[str, Seeds], machine: Mapping[str, str]) -> str:
    lines = [
        f"- `{name}`: {SETTINGS[name].about}; {len(seeds.seeds)} "
        f"{'seed' if len(seeds.seeds) == 1 else 'seeds'}."
        for name, seeds in known.items()
    ]
    said = ", ".join(f"{name} {value}" for name, value in sorted(machine.items()))
    return "\n".join(["## Settings measured", "", f"Run on {said}.", "", *lines, ""])


def _puf(known: Mapping[str, Seeds]) -> str:
    text = "## PUF, Table III: one client goes\n"
    for name in TABLE3:
        if name in known:
            text += f"\n### {SETTINGS[name].about}\n\n{puf_tables.client_table(known[name])}"
    titles = {
        "samples-iid": "## PUF, Table IV: half of the rows go, IID",
        "samples": "## PUF, Table IV: half of the rows go, not IID",
        "two": "## PUF, Table V: two clients go",
    }
    for name, title in titles.items():
        if name in known:
            found = puf_tables.client_table(known[name], ("original", *puf_tables.TABLE4))
            text += f"\n{title}\n\n{found}"
    if "masks" in known:
        text += (
            "\n## PUF, Table VI: segmentation\n\n"
            f"{puf_tables.segmentation_table(known['masks'])}"
        )
    return text


def _kcu(known: Mapping[str, Seeds]) -> str:
    def pick(*names: str) -> list[tuple[str, Seeds]]:
        return [(SETTINGS[name].about, known[name]) for name in names if name in known]

    text = ""
    for name in FULL:
        if name in known:
            text += f"## HF-KCU, Table 1: {name}\n\n{kcu_tables.table1(known[name])}\n"
    found = pick("mnist", "vit", "resnet", "cifar-6000", "cifar", "digits", "quick")
    text += f"## HF-KCU, Table 2: data sets and networks\n\n{kcu_tables.table2(found)}\n"
    if "poisoned" in known:
        text += f"## HF-KCU, Table 3: backdoor\n\n{kcu_tables.table3(known['poisoned'])}\n"
    if "digits" in known:
        text += f"## HF-KCU, Table 4: components\n\n{kcu_tables.table4(known['digits'])}\n"
        text += f"## HF-KCU, Table 5: damping\n\n{kcu_tables.table5(known['digits'])}\n"
    if alphas := pick("digits", "alpha-0.5", "alpha-1"):
        text += f"## HF-KCU, Table 6: skew\n\n{kcu_tables.sweep('α', alphas)}\n"
    if clients := pick("clients-10", "clients-100", "clients-200"):
        text += f"## HF-KCU, Table 7: clients\n\n{kcu_tables.sweep('clients', clients)}\n"
    sized = [
        (title, _size(name, shape), known[name])
        for name, title, shape in SIZES
        if name in known
    ]
    if sized:
        text += f"## HF-KCU, Table 8: size of the model\n\n{kcu_tables.table8(sized)}\n"
    return text


def _size(name: str, shape: Mapping[str, int]) -> int:
    setting = SETTINGS[name]
    return count(network(setting.network, {**shape, **dict(setting.shape)}))
