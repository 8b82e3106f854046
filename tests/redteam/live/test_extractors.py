"""Hostile .pt2 programs, given to the command that runs them."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from tests.redteam.live.conftest import Target
from tests.workers.data.extractors.test_hostile_programs import (
    expanded_ones,
    short_bias,
    training_under_another_name,
)
from tests.workers.data.extractors.test_torch_module import export

Edit = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize("edit", [short_bias, training_under_another_name, expanded_ones])
def test_a_hostile_program_ends_in_a_named_refusal(
    target: Target, tmp_path: Path, edit: Edit
) -> None:
    good, bad, rows = (tmp_path / name for name in ("good.pt2", "bad.pt2", "rows.npz"))
    export(nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3)).eval(), good)
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(bad, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith("models/model.json"):
                content = json.loads(data)
                edit(content)
                data = json.dumps(content).encode()
            new.writestr(info, data)
    np.savez(rows, allow_pickle=False, inputs=np.ones((70, 4), np.float32))
    command = ["features", "extract", "--extractor", "torch-module", "--data", str(rows)]
    out = tmp_path / "out.npz"
    ended = target.processes.cli(*command, "--path", str(good), "--out", str(out), check=False)
    assert ended.returncode == 0, ended.stderr
    out.unlink()
    ended = target.processes.cli(*command, "--path", str(bad), "--out", str(out), check=False)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr
    assert not out.exists()
