"""Programs that would read past their memory, train, or exhaust resources."""

import copy
import hashlib
import json
import random
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.workers.data.extractors.test_torch_module import Mlp, edited, export
from workers.data.extractors import (
    exported_program,
    operators,
    program_bounds,
    torch_module,
)
from workers.data.extractors.base import ExtractorError

Edit = Callable[[dict[str, Any]], object]
Content = dict[str, Any]
MUTANTS = 12


def graph(content: Content) -> dict[str, Any]:
    found: dict[str, Any] = content["graph_module"]["graph"]
    return found


def call(content: Content, operator: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        one for one in graph(content)["nodes"] if f".{operator}." in one["target"]
    )
    return found


def argument(node: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (entry for entry in node["inputs"] if entry["name"] == name)
    return found


def short_bias(content: Content) -> None:
    """Give the batch norm a bias of one element: its running mean, sliced."""
    norm = call(content, "_native_batch_norm_legit_no_training")
    bias = argument(norm, "bias")
    sliced = {
        "target": "torch.ops.aten.slice.Tensor",
        "inputs": [
            {"name": "self", "arg": copy.deepcopy(bias["arg"]), "kind": 1},
            {"name": "dim", "arg": {"as_int": 0}, "kind": 1},
            {"name": "start", "arg": {"as_int": 0}, "kind": 1},
            {"name": "end", "arg": {"as_int": 1}, "kind": 1},
        ],
        "outputs": [{"as_tensor": {"name": "short"}}],
        "metadata": {},
    }
    bias["arg"] = {"as_tensor": {"name": "short"}}
    graph(content)["nodes"].insert(0, sliced)


def dropout_node(content: Content, name: str) -> None:
    """Put a dropout in training before the last call, its flag under any name."""
    last = graph(content)["nodes"][-1]
    position = next(i for i, e in enumerate(last["inputs"]) if "as_tensor" in e["arg"])
    taken = last["inputs"][position]["arg"]
    node = {
        "target": "torch.ops.aten.dropout.default",
        "inputs": [
            {"name": "input", "arg": copy.deepcopy(taken), "kind": 1},
            {"name": "p", "arg": {"as_float": 0.5}, "kind": 1},
            {"name": name, "arg": {"as_bool": True}, "kind": 1},
        ],
        "outputs": [{"as_tensor": {"name": "dropped"}}],
        "metadata": {},
    }
    last["inputs"][position]["arg"] = {"as_tensor": {"name": "dropped"}}
    graph(content)["nodes"].insert(-1, node)


def training_under_another_name(content: Content) -> None:
    dropout_node(content, "evaluation")


def training_under_its_own_name(content: Content) -> None:
    dropout_node(content, "train")


def added(target: str, **given: Any) -> Edit:
    """An edit that puts a call with positional arguments before all others."""

    def edit(content: Content) -> None:
        node = {
            "target": f"torch.ops.aten.{target}",
            "inputs": [{"name": n, "arg": a, "kind": 1} for n, a in given.items()],
            "outputs": [{"as_tensor": {"name": "added"}}],
            "metadata": {},
        }
        graph(content)["nodes"].insert(0, node)

    return edit


expanded_ones = added("ones.default", size={"as_ints": [1 << 20, 1 << 12]})


def many_ones(content: Content) -> None:
    """As much as is allowed, repeatedly, all of it used at the end."""
    for number in range(20):
        added("ones.default", size={"as_ints": [1 << 27]})(content)
        graph(content)["nodes"][0]["outputs"] = [{"as_tensor": {"name": f"many{number}"}}]
    total = {
        "target": "torch.ops.aten.cat.default",
        "inputs": [
            {
                "name": "tensors",
                "arg": {"as_tensors": [{"name": f"many{n}"} for n in range(20)]},
                "kind": 1,
            }
        ],
        "outputs": [{"as_tensor": {"name": "all"}}],
        "metadata": {},
    }
    graph(content)["nodes"].insert(20, total)


def doubled_sizes(content: Content) -> None:
    """A size multiplied with itself until it fills the memory."""
    add = []
    for number in range(80):
        last = {"as_int": 1 << 20} if not number else {"as_name": f"size{number - 1}"}
        add.append(
            {
                "target": "_operator.mul",
                "inputs": [
                    {"name": "", "arg": {"as_sym_int": last}, "kind": 1},
                    {"name": "", "arg": {"as_sym_int": last}, "kind": 1},
                ],
                "outputs": [{"as_sym_int": {"as_name": f"size{number}"}}],
                "metadata": {},
            }
        )
    graph(content)["nodes"][:0] = add


INPUT = {"as_tensor": {"name": "x"}}
HOSTILE: dict[str, tuple[Edit, str]] = {
    "a bias of one element": (short_bias, "do not fit together"),
    "training under another name": (
        training_under_another_name,
        "argument that it does not have",
    ),
    "training under its own name": (training_under_its_own_name, "training mode"),
    "a tensor of 16 GiB": (expanded_ones, "elements"),
    "many large tensors": (many_ones, "bytes at once|elements"),
    "a size without end": (doubled_sizes, "too large for a tensor"),
    "a view of what is not there": (
        added("expand.default", self=INPUT, size={"as_ints": [1 << 30, 64, 4]}),
        "elements",
    ),
    "an endless range": (added("arange.default", end={"as_int": 1 << 39}), "elements"),
    "half precision by number": (
        added("to.prim_dtype", self=INPUT, dtype={"as_int": 5}),
        "not among the operators",
    ),
    "a list multiplied": (
        added("mul.left_t", l={"as_ints": [0]}, n={"as_int": 1 << 30}),
        "not among the operators",
    ),
    "double precision": (
        added("mean.default", self=INPUT, dtype={"as_scalar_type": 8}),
        "leaves float32",
    ),
    "an argument twice": (
        lambda c: graph(c)["nodes"][0]["inputs"].append(graph(c)["nodes"][0]["inputs"][0]),
        "argument that it does not have",
    ),
    "arguments exchanged": (
        lambda c: graph(c)["nodes"][0]["inputs"].reverse(),
        "argument that it does not have",
    ),
    "an argument missing": (
        lambda c: graph(c)["nodes"][0]["inputs"].__delitem__(1),
        "lacks|does not have",
    ),
    "one name for two values": (
        lambda c: graph(c)["nodes"].insert(1, copy.deepcopy(graph(c)["nodes"][0])),
        "the same name",
    ),
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("hostile") / "mlp.pt2"
    export(Mlp().eval(), path)
    return path


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_is_refused_before_anything_runs(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the program ran with memory")

    monkeypatch.setattr(exported_program.ExportedProgram, "run", never)
    edit, message = HOSTILE[name]
    with pytest.raises(ExtractorError, match=message):
        torch_module.load(edited(archive, tmp_path / "mlp.pt2", edit))


def test_more_work_than_an_extractor_may_do_is_refused(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_module.load(archive)
    for bound, message in (
        ("MAX_WORK", "takes more work"),
        ("MAX_WRITTEN", "takes more work"),
        ("MAX_LIVE", "at once"),
        ("MAX_ELEMENTS", "elements"),
    ):
        with monkeypatch.context() as lowered:
            lowered.setattr(program_bounds, bound, 63)
            with pytest.raises(ExtractorError, match=message):
                torch_module.load(archive)


def rewritten(archive: Path, path: Path, **members: Any) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(archive) as old:
        warnings.simplefilter("ignore", UserWarning)  # that a name is taken
        with zipfile.ZipFile(path, "w") as new:
            for info in old.infolist():
                new.writestr(info, old.read(info))
            for name, data in members.items():
                new.writestr(f"mlp/{name}", data)
    return path


def test_members_are_unique_and_do_not_overlap(archive: Path, tmp_path: Path) -> None:
    twice = rewritten(archive, tmp_path / "twice.pt2", byteorder=b"little")
    with pytest.raises(ExtractorError, match="the same name"):
        torch_module.load(twice)
    data = bytearray(archive.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 20 : at + 28] = (len(data) * 2).to_bytes(4, "little") * 2
    overlapping = tmp_path / "overlapping.pt2"
    overlapping.write_bytes(bytes(data))
    with pytest.raises(ExtractorError, match="overlap"):
        torch_module.load(overlapping)


def test_a_weight_is_no_larger_than_its_file(archive: Path, tmp_path: Path) -> None:
    def enlarge(content: Content) -> None:
        meta = content["config"]["layers.0.weight"]["tensor_meta"]
        meta["sizes"] = [{"as_int": 1 << 15}, {"as_int": 1 << 15}]
        meta["strides"] = [{"as_int": 0}, {"as_int": 0}]

    path = edited(archive, tmp_path / "m.pt2", enlarge, "model_weights_config.json")
    with pytest.raises(ExtractorError, match="larger than its file"):
        torch_module.load(path)


@pytest.mark.parametrize(
    ("bound", "module"), [("MAX_FILE", torch_module), ("MAX_JSON", exported_program)]
)
def test_files_beyond_their_size_are_not_read(
    archive: Path, monkeypatch: pytest.MonkeyPatch, bound: str, module: Any
) -> None:
    monkeypatch.setattr(module, bound, 100)
    with pytest.raises(ExtractorError, match="more than 100 bytes"):
        torch_module.load(archive)


class Norms(nn.Module):
    """Every kernel that trusts the lengths of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norms = nn.Sequential(
            nn.BatchNorm2d(4),
            nn.GroupNorm(2, 4),
            nn.InstanceNorm2d(4, affine=True),
            nn.PReLU(4),
        )
        self.norm = nn.LayerNorm(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms(self.conv(x.view(x.shape[0], 1, 6, 6)))
        y = nn.functional.interpolate(y, (6, 6), mode="bilinear")
        y = self.norm(nn.functional.max_pool2d(y, 2).flatten(2).transpose(1, 2))
        found: torch.Tensor = self.attention(y, y, y, need_weights=False)[0].flatten(1)
        return found


def mutated(content: Content, seed: int) -> Content:
    """Return a program with one or two of its numbers, names or calls changed."""
    draw, changed = random.Random(seed), copy.deepcopy(content)
    nodes = graph(changed)["nodes"]
    for _ in range(draw.randint(1, 2)):
        entries = [entry for node in nodes for entry in node["inputs"]]
        entry, kind = draw.choice(entries), draw.randrange(5)
        form = next(iter(entry["arg"]))
        if kind == 0:
            other = draw.choice(entries)
            entry["arg"] = copy.deepcopy(other["arg"])
        elif kind == 1 and form == "as_ints" and entry["arg"][form]:
            values = entry["arg"][form]
            values[draw.randrange(len(values))] = draw.choice([-1, 0, 1, 7, 1 << 20, 1 << 62])
        elif kind == 2 and form in ("as_int", "as_float", "as_bool"):
            entry["arg"][form] = draw.choice([-1, 0, 1, 2, 3, 1 << 40, 0.5, True])
        elif kind == 3:
            draw.choice(nodes)["target"] = draw.choice(nodes)["target"]
        else:
            names = [e["arg"]["as_tensor"]["name"] for e in entries if "as_tensor" in e["arg"]]
            if form == "as_tensor":
                entry["arg"] = {"as_tensor": {"name": draw.choice(names)}}
    return changed


def run_mutants(archive: Path, count: int) -> None:
    """Print the result of each mutant of an archive: a digest of features, or refused."""
    with zipfile.ZipFile(archive) as opened:
        members = {info.filename: opened.read(info) for info in opened.infolist()}
    (name,) = (one for one in members if one.endswith("models/model.json"))
    content = json.loads(members[name])
    x = np.random.default_rng(0).normal(size=(70, 36)).astype(np.float32)
    path = archive.with_name(f"mutant-{sys.argv[-1]}.pt2")
    for seed in range(count):
        with zipfile.ZipFile(path, "w") as new:
            for member, data in members.items():
                mutant = json.dumps(mutated(content, seed)).encode()
                new.writestr(member, mutant if member == name else data)
        try:
            features = torch_module.load(path).extract(x)
            print(hashlib.sha256(features.tobytes()).hexdigest())  # noqa: T201
        except ExtractorError:
            print("refused")  # noqa: T201


def test_mutated_programs_never_crash_hang_or_differ(tmp_path: Path) -> None:
    torch.manual_seed(2)
    path = tmp_path / "norms.pt2"
    export(Norms().eval(), path, 36)
    code = (
        "from pathlib import Path\n"
        "from tests.workers.data.extractors.test_hostile_programs import run_mutants\n"
        f"run_mutants(Path({str(path)!r}), {MUTANTS})\n"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(number)], stdout=subprocess.PIPE, text=True
        )
        for number in range(2)
    ]
    found = [run.communicate(timeout=240)[0].split() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert found[0] == found[1]
    assert len(found[0]) == MUTANTS
    assert "refused" in found[0]
    assert any(one != "refused" for one in found[0])


def test_every_check_is_of_an_operator() -> None:
    assert operators.CHECKS.keys() <= operators.OPERATORS
