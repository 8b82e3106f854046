"""The comparison of sums writes its record, and fails where a device's bits are others."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from benchmarks import gpu_statistics
from benchmarks.common import ProblemSize
from workers.methods.ridge.statistics import torch_backend
from workers.methods.ridge.statistics.torch_backend import TorchBackend


@pytest.mark.parametrize("right", [True, False])
def test_the_record_says_whether_the_digests_are_equal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, right: bool
) -> None:
    monkeypatch.setattr(gpu_statistics, "QUICK", ProblemSize(2100, 8, 3, 1))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if not right:
        multiply = TorchBackend.multiply
        monkeypatch.setattr(torch_backend, "check_device", lambda _: None)
        monkeypatch.setattr(TorchBackend, "multiply", lambda *factors: multiply(*factors) + 1)
    file = tmp_path / "statistics.json"
    result = CliRunner().invoke(gpu_statistics.main, ["--quick", "--json", str(file)])
    assert "CUDA: NOT MEASURED" in result.output
    record = json.loads(file.read_text())
    met = {line["name"]: line["met"] for line in record["claims"]}
    assert met["BLAS: digests equal to BLAS's"]
    assert met["torch CPU: digests equal to BLAS's"] == (result.exit_code == 0) == right
