"""Exported programs, read without torch.export.load; that is the oracle."""

import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from workers.data.extractors import (
    registry,
    torch_module,
)
from workers.data.extractors.base import Extractor, ExtractorError
from workers.errors import MissingLibraryError

Edit = Callable[[dict[str, Any]], object]


class Network(nn.Module):
    """Convolution, batch norm, an in-place ReLU, attention, sizes, an assertion (to)."""

    gain: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.attention = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.register_buffer("gain", torch.linspace(0.5, 1.5, 16), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x.to(torch.float32).view(x.shape[0], 1, 8, 8))
        y = nn.functional.relu(self.norm(y), inplace=True)
        y = nn.functional.max_pool2d(y, 2).flatten(2) * self.gain
        first, second = self.attention(y).chunk(2, 1)
        return torch.cat([first, second], 1)[:, 0:3].mean(1) * torch.tensor(3.0)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.GELU(), nn.Linear(8, 3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def export(
    module: nn.Module,
    path: Path,
    width: int = 4,
    *,
    decompositions: str = "functional",
    **named: Any,
) -> None:
    named = {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},), **named}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, of its own code
        program = torch.export.export(module, (torch.randn(5, width),), **named)
        if decompositions != "none":
            program = program.run_decompositions({} if decompositions == "functional" else None)
        torch.export.save(program, path)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("exported") / "mlp.pt2"
    export(Mlp().eval(), path)
    return path


def rows(n: int, width: int = 4) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, width)).astype(np.float32)


def edited(archive: Path, path: Path, edit: Edit, member: str = "models/model.json") -> Path:
    """A copy of the archive whose JSON member was changed."""
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith(member):
                content = json.loads(data)
                edit(content)
                data = json.dumps(content).encode()
            new.writestr(info, data)
    return path


@pytest.mark.parametrize("decompositions", ["none", "functional", "core"])
def test_features_are_those_of_the_module(tmp_path: Path, decompositions: str) -> None:
    torch.manual_seed(1)
    module = Mlp().eval() if decompositions == "none" else Network().eval()
    width = 4 if decompositions == "none" else 64
    path = tmp_path / "m.pt2"
    export(module, path, width, decompositions=decompositions)
    extractor = torch_module.load(path)
    x = rows(70, width)
    with torch.no_grad():
        want = module(torch.from_numpy(x)).numpy()
    got = extractor.extract(x)
    assert got.dtype == np.float32
    assert got.shape == want.shape == (70, int(extractor.parameters["outputs"]))
    assert np.allclose(got, want, rtol=1e-5, atol=1e-6)
    assert np.ptp(got, axis=0).min() > 0


def test_features_do_not_depend_on_neighbours(archive: Path) -> None:
    extractor = torch_module.load(archive)
    x = rows(130)
    whole = extractor.extract(x)
    assert np.array_equal(whole, extractor.extract(x))
    assert np.array_equal(whole[:3], extractor.extract(x[:3]))
    assert np.array_equal(whole[64:], extractor.extract(x[64:]))
    assert extractor.extract(x[:0]).shape == (0, 3)


def test_determinism_is_asked_for_and_given_back(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extractor = torch_module.load(archive)
    seen: list[bool] = []
    run = type(extractor.program).run

    def spy(program: Any, batch: torch.Tensor) -> torch.Tensor:
        seen.append(torch.are_deterministic_algorithms_enabled())
        seen.append(torch.is_inference_mode_enabled())
        return run(program, batch)

    monkeypatch.setattr(type(extractor.program), "run", spy)
    extractor.extract(rows(2))
    assert seen == [True, True]
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_registry_builds_it_again(archive: Path) -> None:
    extractor: Extractor = torch_module.load(archive)
    assert extractor.parameters == {"inputs": "4", "outputs": "3"}
    again = registry.get(
        "torch-module", extractor.parameters, path=archive, digest=extractor.digest
    )
    assert np.array_equal(again.extract(rows(3)), extractor.extract(rows(3)))
    with pytest.raises(ExtractorError, match="other parameters"):
        registry.open_extractor("torch-module", {"outputs": "4"}, path=archive)


def test_other_weights_have_another_digest(archive: Path, tmp_path: Path) -> None:
    copied = tmp_path / "elsewhere.pt2"
    copied.write_bytes(archive.read_bytes())
    pinned = torch_module.load(archive).digest
    assert torch_module.load(copied).digest == pinned
    with zipfile.ZipFile(archive) as old:
        weight = old.read("mlp/data/weights/weight_0")
    data = archive.read_bytes()
    position = data.index(weight)
    flipped = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
    # The checksum of a zip member is checked, so make it right: one bit of one weight differs.
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(copied, "w") as new:
        for info in old.infolist():
            part = old.read(info)
            if info.filename.endswith("weight_0"):
                part = bytes([part[0] ^ 1]) + part[1:]
            new.writestr(info, part)
    with pytest.raises(ExtractorError, match="differs from the pinned one"):
        registry.open_extractor("torch-module", {}, path=copied, digest=pinned)
    copied.write_bytes(flipped)
    with pytest.raises(ExtractorError, match="no archive"):
        torch_module.load(copied)


class Planted:
    """Unpickling this is an error that a test would see."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('code in an archive was executed')",)


def _pickled_weight(config: dict[str, Any]) -> None:
    config["config"]["layers.0.weight"]["use_pickle"] = True


def _pickled_constant(config: dict[str, Any]) -> None:
    entry = {
        "path_name": "opaque_obj_0",
        "is_param": False,
        "use_pickle": True,
        "tensor_meta": None,
    }
    config["config"]["planted"] = entry


@pytest.mark.parametrize(
    ("member", "edit"),
    [
        ("model_weights_config.json", _pickled_weight),
        ("model_constants_config.json", _pickled_constant),
    ],
)
def test_nothing_is_unpickled(archive: Path, tmp_path: Path, member: str, edit: Edit) -> None:
    path = edited(archive, tmp_path / "mlp.pt2", edit, member)
    planted = io.BytesIO()
    pickle.dump(Planted(), planted)
    with zipfile.ZipFile(path, "a") as added:
        added.writestr("mlp/data/constants/opaque_obj_0", planted.getvalue())
    with pytest.raises(ExtractorError, match="pickled objects"):
        torch_module.load(path)


def test_pickled_sample_inputs_are_not_even_read(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "mlp.pt2"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            sample = info.filename.endswith("sample_inputs/model.pt")
            new.writestr(info, pickle.dumps(Planted()) if sample else old.read(info))
    with pytest.raises(SystemExit, match="executed"):
        torch.export.load(path)  # what would have happened
    assert torch_module.load(path).extract(rows(2)).shape == (2, 3)


def node(content: dict[str, Any], position: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = content["graph_module"]["graph"]["nodes"][position]
    return found


EDITS: dict[str, tuple[Edit, str]] = {
    "a file is read": (
        lambda c: node(c).update(target="torch.ops.aten.from_file.default"),
        "from_file",
    ),
    "python": (lambda c: node(c).update(target="torch.load"), "calls torch.load"),
    "a module": (lambda c: node(c).update(target="math.sqrt"), "math.sqrt"),
    "an attribute": (
        lambda c: node(c).update(target="torch.ops.aten.linear.default.__class__"),
        "export the module again",
    ),
    "random": (
        lambda c: node(c).update(target="torch.ops.aten.bernoulli.default"),
        "bernoulli",
    ),
    "uninitialised": (
        lambda c: node(c).update(target="torch.ops.aten.empty_like.default"),
        "empty_like",
    ),
    "in place": (
        lambda c: node(c).update(target="torch.ops.aten.relu_.default"),
        "run_decompositions",
    ),
    "an output argument": (
        lambda c: node(c).update(target="torch.ops.aten.add.out"),
        "in place",
    ),
    "no such overload": (
        lambda c: node(c).update(target="torch.ops.aten.linear.nothing"),
        "export the module again",
    ),
    "another schema": (
        lambda c: c["schema_version"].update(major=9),
        "another version of torch",
    ),
    "an unknown argument": (
        lambda c: node(c)["inputs"][0].update(arg={"as_graph": {}}),
        "of the kind",
    ),
    "half precision": (
        lambda c: node(c)["inputs"][0].update(arg={"as_scalar_type": 6}),
        "float32",
    ),
    "a missing value": (
        lambda c: node(c)["inputs"][0].update(arg={"as_tensor": {"name": "none"}}),
        "does not run",
    ),
    "no graph": (lambda c: c.pop("graph_module"), "KeyError"),
    "no nodes": (lambda c: c["graph_module"]["graph"].update(nodes=[]), "never computes"),
    "two inputs": (
        lambda c: c["graph_module"]["signature"]["input_specs"].append(
            c["graph_module"]["signature"]["input_specs"][-1]
        ),
        "exactly one tensor",
    ),
    "no output": (
        lambda c: c["graph_module"]["signature"].update(output_specs=[]),
        "return exactly one",
    ),
    "state": (
        lambda c: c["graph_module"]["signature"]["output_specs"].insert(
            0, {"buffer_mutation": {}}
        ),
        r"\.eval\(\)",
    ),
    "custom object": (
        lambda c: c["graph_module"]["signature"]["input_specs"][0].update(custom_obj={}),
        "export the module again",
    ),
    "few rows": (
        lambda c: next(iter(c["range_constraints"].values())).update(max_val=8),
        "batches of 64",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_odd_programs_are_refused(archive: Path, tmp_path: Path, name: str) -> None:
    edit, message = EDITS[name]
    with pytest.raises(ExtractorError, match=message):
        torch_module.load(edited(archive, tmp_path / "mlp.pt2", edit))


class Training(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5, training=True)


class Wide(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 2, 2)


class Double(nn.Module):
    weight: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(4, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(x + 1)


@pytest.mark.parametrize(
    ("module", "named", "message"),
    [
        (Training(), {}, "not among the operators|training mode"),
        (Training(), {"decompositions": "none"}, r"training mode: call \.eval\(\)"),
        (Mlp(), {"decompositions": "none"}, r"training mode|in place|\.eval\(\)"),
        (InPlace(), {"decompositions": "none"}, "run_decompositions"),
        (Wide(), {}, "one float32 vector"),
        (Double(), {}, r"convert with \.float\(\)"),
        (Mlp().eval(), {"dynamic_shapes": None}, "first dimension"),
    ],
)
def test_modules_that_are_no_extractor_are_refused(
    tmp_path: Path, module: nn.Module, named: dict[str, Any], message: str
) -> None:
    path = tmp_path / "m.pt2"
    export(module, path, **named)
    with pytest.raises(ExtractorError, match=message):
        torch_module.load(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [(None, "missing"), (b"", "no archive"), (b"PK\x03\x04", "no archive")],
)
def test_files_that_are_no_archive_are_refused(
    tmp_path: Path, data: bytes | None, message: str
) -> None:
    path = tmp_path / "m.pt2"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ExtractorError, match=message):
        torch_module.load(path)


def test_other_archives_are_refused(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    torch.save({"weight": torch.ones(2)}, path)
    with pytest.raises(ExtractorError, match=r"torch\.export\.save"):
        torch_module.load(path)
    with (
        zipfile.ZipFile(archive) as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    with pytest.raises(ExtractorError, match="compressed"):
        torch_module.load(path)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((2, 3), np.float32), "4 columns"),
        (np.array([[0.0, np.nan, 0, 0]]), "NaN"),
        (np.zeros((2, 4), np.int64), "floats"),
        (np.array(["a"]), "4 columns"),
    ],
)
def test_odd_inputs_are_refused(archive: Path, bad: np.ndarray, message: str) -> None:
    from workers.errors import RefusedError

    with pytest.raises(RefusedError, match=message):
        torch_module.load(archive).extract(bad)


class Logarithm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x)


def test_nan_from_the_network_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    export(Logarithm(), path)
    extractor = torch_module.load(path)
    assert np.allclose(extractor.extract(np.ones((3, 4))), 0)
    with pytest.raises(ExtractorError, match="NaN or infinity"):
        extractor.extract(-np.ones((3, 4)))


def test_without_torch_the_extra_is_named(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("workers.libraries.import_module", missing)
    with pytest.raises(MissingLibraryError, match=r"in a clone of Lethe: .*\[torch\]"):
        registry.open_extractor("torch-module", {}, path=archive)
