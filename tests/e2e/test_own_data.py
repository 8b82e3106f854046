"""From a Parquet file and an e-mail address to a certificate and an ONNX model, as the README."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq

from tests.e2e.harness import Processes

ROWS = 300


def customers(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Write rows of two for each customer; return their features."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, 3))
    columns = {f"f_{name}": features[:, place] for place, name in enumerate("abc")}
    pq.write_table(
        pa.table(
            {
                "id": [f"k{row}" for row in range(ROWS)],
                "region": [("north", "south")[row % 2] for row in range(ROWS)],
                "email": [f"Customer{row // 2}@example.org" for row in range(ROWS)],
                "churned": np.where(features[:, 0] > 0, "yes", "no"),
                **columns,
            }
        ),
        path,
    )
    return features


def test_from_a_table_and_an_address_to_a_certificate_and_a_model(
    processes: Processes, tmp_path: Path
) -> None:
    features = customers(tmp_path / "customers.parquet")
    processes.start_api()
    processes.start_worker()
    processes.more |= {"LETHE_TOKEN": processes.token, "LETHE_URL": processes.base_url}
    registered = processes.cli(
        *("model", "register", "ridge", str(tmp_path / "customers.parquet"), "--ref", "churn"),
        *("--label", "churned", "--record-id", "id", "--client", "region"),
        *("--person", "email=email", "--features", "f_*", "--penalty", "10"),
    )
    assert "churn is ready at version 1" in registered.stdout
    submitted = processes.cli(
        *("request", "submit", "--person", "email=customer7@example.org", "--on-behalf"),
        *("--ticket", "T-1", "--watch", "--timeout", "60", "--json"),
    )
    case = json.loads(submitted.stdout)
    assert [part["outcome"] for part in case["parts"]] == ["certified"]
    answer, folder = tmp_path / "answer.json", tmp_path / "certificates"
    processes.cli(
        *("case", "summary", case["ref"], "--out", str(answer)),
        *("--certificates", str(folder)),
    )
    keys = processes.directory / "data" / "keys"
    certificate = folder / "churn.sigstore.json"
    verified = processes.cli("certificate", "verify", str(certificate), "--keys", str(keys))
    assert "PASS" in verified.stdout
    processes.cli(
        *("case", "verify", str(answer), "--issuer-key", str(keys / "issuer.pem")),
        *("--certificate", str(certificate)),
    )
    model = tmp_path / "churn.onnx"
    processes.cli("model", "download", "churn", "--format", "onnx", "--out", str(model))
    session = onnxruntime.InferenceSession(model)
    label, _ = session.run(None, {"features": features.astype(np.float32)})
    assert (label == np.where(features[:, 0] > 0, "yes", "no")).mean() > 0.8
    stored = b"".join(
        path.read_bytes() for path in processes.directory.rglob("*") if path.is_file()
    )
    assert b"example.org" not in stored.lower()
