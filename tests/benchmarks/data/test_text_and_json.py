"""LEAF's JSON and Sentiment140's CSV: small files in those formats, and damaged ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.data.leaf import load_leaf
from benchmarks.data.sentiment140 import load_sentiment140
from workers.errors import DatasetError


def row(value: float) -> list[float]:
    return [value] + [0.0] * 783


def leaf(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "users": ["w2", "w1"],
        "num_samples": [2, 1],
        "user_data": {
            "w1": {"x": [row(1.0)], "y": [61]},
            "w2": {"x": [row(128 / 255), row(0.5)], "y": [0, 10]},
        },
    }
    document.update(changes)
    return document


def written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_femnist_and_its_writers(tmp_path: Path) -> None:
    train = tmp_path / "train"
    train.mkdir()
    written(train / "all_1.json", leaf())
    more = {"users": ["w1"], "num_samples": [1], "user_data": {"w1": {"x": [row(0)], "y": [5]}}}
    written(train / "all_2.json", more)
    test = written(tmp_path / "test.json", leaf())
    got = load_leaf(train, test)
    assert got.clients is not None
    assert got.clients.tolist() == ["w1", "w1", "w2", "w2", "w1", "w2", "w2"]
    assert got.labels.tolist() == [61, 5, 0, 10, 61, 0, 10]
    assert got.is_test.tolist() == [False] * 4 + [True] * 3
    assert got.images.shape == (7, 28, 28, 1)
    assert got.images[:4, 0, 0, 0].tolist() == [255, 0, 128, 128]
    assert [got.label_names[label] for label in (0, 10, 61)] == ["0", "A", "z"]


def user(x: Any, y: Any) -> dict[str, Any]:
    return leaf(users=["secret"], num_samples=[1], user_data={"secret": {"x": x, "y": y}})


BAD_LEAF: dict[str, tuple[Any, str]] = {
    "a list": ([], "no LEAF"),
    "no users": ({"num_samples": [], "user_data": {}}, "no LEAF"),
    "a user twice": (leaf(users=["w1", "w1"]), "distinct"),
    "users as text": (leaf(users="w1"), "distinct"),
    "a user that is a list": (leaf(users=[["w1"], ["w2"]]), "no LEAF"),
    "a user without data": (leaf(users=["w1", "w2", "w3"], num_samples=[1, 2, 0]), "same users"),
    "a count too few": (leaf(num_samples=[2]), "same users"),
    "another count": (leaf(num_samples=[1, 2]), "num_samples"),
    "a count as text": (leaf(num_samples=["2", 1]), "num_samples"),
    "a row too short": (user([[0.0] * 783], [1]), "784"),
    "rows of different lengths": (user([[0.0]], [1]), "784"),
    "a label too many": (user([row(0)], [1, 2]), "784"),
    "a label beyond 61": (user([row(0)], [62]), "classes"),
    "a negative label": (user([row(0)], [-1]), "classes"),
    "an enormous label": (user([row(0)], [2**70]), "no LEAF"),
    "a label as text": (user([row(0)], ["1"]), "integers"),
    "a pixel above 1": (user([row(1.01)], [1]), "0 to 1"),
    "a pixel that is NaN": (user([row(float("nan"))], [1]), "0 to 1"),
    "a pixel as text": (user([["a"] * 784], [1]), "no LEAF"),
    "no x": (leaf(users=["secret"], num_samples=[1], user_data={"secret": {"y": [1]}}), "no LEAF"),
    "no row at all": (leaf(users=[], num_samples=[], user_data={}), "no row"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_LEAF)
def test_odd_leaf_files_are_named(what: str, tmp_path: Path) -> None:
    document, message = BAD_LEAF[what]
    with pytest.raises(DatasetError, match=message) as caught:
        load_leaf(written(tmp_path / "a.json", document))
    assert "secret" not in str(caught.value)


def test_files_that_are_no_json(tmp_path: Path) -> None:
    for content in (b"", b"{", b"\xff\xfe", b"[" * 100_000, json.dumps(leaf()).encode()[:-2]):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(DatasetError):
            load_leaf(tmp_path / "a.json")
    with pytest.raises(DatasetError, match="cannot be read"):
        load_leaf(tmp_path / "nowhere.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=r"no \.json"):
        load_leaf(tmp_path / "empty")


LINES = [
    '"0","1","Mon Apr 06","NO_QUERY","anna","I hate, ""really"", Mondays"',
    '"4","2","Mon Apr 06","NO_QUERY","bert","caf\xe9 is great"',
    '"2","3","Mon Apr 06","NO_QUERY","cleo","neither"',
    '"4","4","Mon Apr 06","NO_QUERY","anna","two\nlines"',
]


def csv_file(folder: Path, lines: list[str]) -> Path:
    path = folder / "tweets.csv"
    path.write_bytes("\r\n".join(lines).encode("latin-1"))
    return path


def test_tweets_and_their_authors(tmp_path: Path) -> None:
    got = load_sentiment140(csv_file(tmp_path, LINES))
    assert got.texts == ('I hate, "really", Mondays', "café is great", "two\nlines")
    assert got.labels.tolist() == [0, 1, 1]
    assert got.clients.tolist() == ["anna", "bert", "anna"]
    assert len(load_sentiment140(csv_file(tmp_path, LINES), limit=1).texts) == 1


BAD_CSV: dict[str, tuple[list[str], str]] = {
    "empty": ([], "there is none"),
    "neutral only": ([LINES[2]], "there is none"),
    "five columns": ([LINES[0], '"0","1","d","q","secret"'], "line 2: .* 6 columns"),
    "seven columns": ([LINES[0] + ',"x"'], "line 1: .* 6 columns"),
    "a header": (["target,id,date,flag,user,text"], "line 1: polarity"),
    "another polarity": (['"3","1","d","q","secret","t"'], "polarity"),
    "no user": (['"0","1","d","q","","t"'], "user"),
    "an open quotation": ([LINES[0], '"0","1","d","q","secret","t'], "no CSV"),
    "a quotation within": (['"0","1","d","q","se"cret","t"'], "no CSV"),
    "an enormous field": ([f'"0","1","d","q","u","{"x" * 200_000}"'], "no CSV"),
}


@pytest.mark.parametrize("what", BAD_CSV)
def test_odd_csv_files_are_named(what: str, tmp_path: Path) -> None:
    lines, message = BAD_CSV[what]
    with pytest.raises(DatasetError, match=message) as caught:
        load_sentiment140(csv_file(tmp_path, lines))
    assert "secret" not in str(caught.value)


def test_a_missing_csv_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot be read"):
        load_sentiment140(tmp_path / "nowhere.csv")
