"""`lethe features extract` from Sentiment140's CSV: the users become the clients."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.workers.cli.registering import said
from workers.cli.features import features
from workers.data.extractors import registry

LINES = [
    '"0","1","d","q","anna","sad"',
    '"2","2","d","q","cleo","neither"',
    '"4","3","d","q","bert","good, very"',
    '"4","4","d","q","anna","fine"',
]


class Lengths:
    """Reads texts: their length, and how many letters e they have."""

    def __init__(self) -> None:
        self.id, self.digest, self.kind = "sentence-transformers", "0" * 64, "texts"
        self.parameters = {"dimension": "2"}

    def extract(self, inputs: np.ndarray) -> np.ndarray:
        assert inputs.dtype.kind == "U"
        return np.array([[len(t), t.count("e")] for t in inputs.tolist()], dtype=np.float32)


@pytest.fixture
def csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "open_extractor", lambda *_, **__: Lengths())
    path = tmp_path / "tweets.csv"
    path.write_bytes("\r\n".join(LINES).encode("latin-1"))
    return path


def extract(data: Path, *words: object) -> Result:
    given = ["extract", "--extractor", "sentence-transformers", "--data", data]
    out = ["--out", data.parent / "features.npz"]
    return CliRunner().invoke(features, [str(word) for word in (*given, *out, *words)])


def test_tweets_become_features_of_their_authors(csv: Path) -> None:
    result = extract(csv)
    assert result.exit_code == 0, result.exception
    with np.load(csv.parent / "features.npz") as found:
        assert found["features"].tolist() == [[3, 0], [10, 1], [4, 1]]
        assert found["labels"].tolist() == [0, 1, 1]
        assert found["clients"].tolist() == ["anna", "bert", "anna"]
        assert found["records"].tolist() == [f"record-000000{row}" for row in range(3)]
        assert found["label_names"].tolist() == ["negative", "positive"]


def test_users_with_few_tweets_are_left_out(csv: Path) -> None:
    other = csv.rename(csv.with_suffix(".txt"))
    assert extract(other, "--format", "sentiment140", "--at-least", 2).exit_code == 0
    with np.load(csv.parent / "features.npz") as found:
        assert found["features"].tolist() == [[3, 0], [4, 1]]
        assert set(found["clients"]) == {"anna"}
        assert found["records"].tolist() == ["record-0000000", "record-0000002"]
    assert "only 1 clients" in said(
        extract(other, "--format", "sentiment140", "--draw", 2, "--at-least", 2)
    )
    np.savez(csv.parent / "raw.npz", texts=np.array(["a"]), labels=[0])
    assert "users only" in said(extract(csv.parent / "raw.npz", "--at-least", 2))
