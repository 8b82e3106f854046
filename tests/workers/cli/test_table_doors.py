"""Tables where rows stay with clients, for networks, and for extractors."""

import io
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pydantic import ValidationError

from app.schemas.models import NewModel
from lethe.identity import COLUMN, digests, pack
from lethe.signing.keys import generate_key, private_pem
from tests.workers.cli.models.registering import Service, register, said
from workers.cli.client import client
from workers.cli.errors import UnusableError
from workers.cli.features import features
from workers.data.extractors import registry
from workers.data.extractors.base import Extractor
from workers.data.extractors.described import Described, format_description
from workers.data.extractors.identity import Identity
from workers.data.npz import load_npz
from workers.registration.ridge import prepare
from workers.secure_sum.local import load_rows
from workers.secure_sum.wire import unpack_message

COLUMNS: dict[str, list[Any]] = {
    "id": [f"r{row}" for row in range(12)],
    "kind": [("blue", "red")[row % 2] for row in range(12)],
    "ward": ["w7"] * 12,
    "email": [f"p{row}@example.org" for row in range(12)],
    "f_a": [row / 4 for row in range(12)],
    "f_b": [row % 3 for row in range(12)],
    "test": [row < 2 for row in range(12)],
    "note": [f"words {row}" for row in range(12)],
}
WORDS = (
    *("--label", "kind", "--record-id", "id", "--client", "ward"),
    *("--person", "email=email", "--features", "f_*"),
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(COLUMNS), path)
    return path


class Provider:
    """Holds a model whose classes have another order than this client's labels."""

    def __init__(self, data: str, extractor: dict[str, Any] | None = None) -> None:
        self.data = data
        own = Identity(2)
        plain = {"id": own.id, "digest": own.digest, "parameters": {}}
        self.extractor = extractor or plain
        self.features: list[str] = []
        self.sent: list[bytes] = []

    def manifest(self, ref: str) -> dict[str, Any]:
        return {
            "data": self.data,
            "family": "ridge",
            "classes": ["red", "green", "blue"],
            "bits": 16,
            "exponents": [-8, -8],
            "features": self.features,
            "extractor": self.extractor,
        }

    def contribute(self, ref: str, body: bytes, *, add_back: bool) -> dict[str, Any]:
        self.sent.append(body)
        return {"id": "c", "rows": 12, "warnings": []}


def contribute(
    monkeypatch: pytest.MonkeyPatch, provider: Provider, data: Path, *words: str
) -> Result:
    monkeypatch.setattr("lethe.client.Client", lambda *_: nullcontext(provider))
    key = data.with_name("key.pem")
    key.write_text(private_pem(generate_key()))
    arguments = ["contribute", "--url", "http://x", "--key", str(key), "--model", "m"]
    return CliRunner().invoke(client, [*arguments, "--data", str(data), *words])


def test_a_contribution_has_the_numbers_of_the_models_classes(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Provider("rows")
    result = contribute(monkeypatch, provider, table, *WORDS)
    assert result.exit_code == 0, result.exception
    with np.load(io.BytesIO(provider.sent[0])) as sent:
        assert sent["labels"].tolist() == [2, 0] * 6
        assert sent["records"].tolist() == COLUMNS["id"]
        assert sent["features"][:, 0].tolist() == COLUMNS["f_a"]
        assert sent[COLUMN + "email"][3].tobytes() == pack(digests("email", "p3@example.org"))
    assert b"example.org" not in provider.sent[0]


@pytest.mark.parametrize("data", ["rows", "statistics"])
def test_features_of_another_extractor_are_not_contributed(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have as many columns as the model's, so that nobody else could notice."""
    rows: dict[str, Any] = {"features": np.ones((2, 2)), "labels": np.zeros(2, np.int64)}
    rows |= {"clients": np.array(["c", "c"]), "records": np.array(["r1", "r2"])}
    made: list[tuple[Extractor, bool]] = [
        (Described("mine", "0" * 64, {}, 2), True),
        (Identity(2), False),
    ]
    for extractor, refused in made:
        provider, path = Provider(data), tmp_path / "rows.npz"
        named = np.array(format_description(extractor, 2))
        np.savez(path, allow_pickle=False, extractor=named, **rows)
        result = contribute(monkeypatch, provider, path)
        assert bool(provider.sent) != refused
        if refused:
            assert isinstance(result.exception, UnusableError)
            assert "the model reads features of identity" in result.exception.detail


@pytest.mark.parametrize("identities", [False, True])
def test_an_npz_that_names_its_labels_is_contributed_by_their_names(
    identities: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lethe features extract` writes such a file: its classes are those of its own rows."""
    path = tmp_path / "rows.npz"
    rows: dict[str, Any] = {
        "features": np.array([[1.0, 1], [2, 2], [3, 3]], np.float32),
        "labels": np.array([0, 1, 1]),
        "label_names": np.array(["blue", "red"]),
        "clients": np.array(["w7"] * 3),
        "records": np.array(["r1", "r2", "r3"]),
        "is_test": np.array([False, False, True]),
    }
    if identities:
        rows["identity_email"] = np.array(["a@example.org", "", "b@example.org"])
    np.savez(path, allow_pickle=False, **rows)
    provider = Provider("rows")
    result = contribute(monkeypatch, provider, path)
    assert result.exit_code == 0, result.exception
    assert "held out: 1 row (by is_test)" in result.output
    with np.load(io.BytesIO(provider.sent[0])) as sent:
        assert sent["labels"].tolist() == [2, 0]
    provider = Provider("statistics")
    result = contribute(monkeypatch, provider, path)
    assert result.exit_code == 0, result.exception
    assert "held out: 1 row (by is_test)" in result.output
    message = unpack_message(provider.sent[0], bits=16).message
    assert message.counts.tolist() == [1, 0, 1]
    odd = {**rows, "label_names": np.array(["blue", "pink"])}
    for data in ("rows", "statistics"):
        np.savez(path, allow_pickle=False, **odd)
        provider = Provider(data)
        assert "none of the model's classes" in said(contribute(monkeypatch, provider, path))
        assert not provider.sent


@pytest.mark.parametrize("data", ["rows", "statistics", "recipe"])
def test_rows_of_one_label_are_contributed(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has its classes already; a person's rows often have one label."""
    path = tmp_path / "rows.parquet"
    recipe = {"columns": 2, "features": ["f_a", "f_b"], "categories": {}}
    for label, number in (("blue", 2), ("red", 0), ("pink", None)):
        pq.write_table(pa.table({**COLUMNS, "kind": [label] * 12}), path)
        provider = Tables(**recipe) if data == "recipe" else Provider(data)
        result = contribute(monkeypatch, provider, path, *WORDS)
        if number is None:
            assert "12 rows have a label that is none of the model" in said(result)
            assert provider.sent == []
            continue
        assert result.exit_code == 0, result.exception
        if data == "statistics":
            counts = unpack_message(provider.sent[0], bits=16).message.counts
            assert counts.tolist() == [12 * (place == number) for place in range(3)]
        else:
            with np.load(io.BytesIO(provider.sent[0])) as sent:
                assert sent["labels"].tolist() == [number] * 12


def test_features_of_rows_with_one_label_are_contributed_and_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: Service
) -> None:
    path, out = tmp_path / "rows.parquet", tmp_path / "out.npz"
    pq.write_table(pa.table({**COLUMNS, "kind": ["blue"] * 12}), path)
    assert "kind: has one value only" in said(register(path, "--network", "logistic", *WORDS))
    own = ("--extractor", "identity", *WORDS)
    result = extract(path, out, *own)
    assert result.exit_code == 0, result.exception
    provider = Provider("rows")
    result = contribute(monkeypatch, provider, out)
    assert result.exit_code == 0, result.exception
    with np.load(io.BytesIO(provider.sent[0])) as sent:
        assert sent["labels"].tolist() == [2] * 12
    prepared = prepare(load_npz(out), Identity(2), ref="m")
    with pytest.raises(ValidationError, match="classes"):
        NewModel.model_validate(prepared.manifest)
    assert service.manifest == {}


def test_a_table_without_some_labels_is_contributed_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({**COLUMNS, "kind": [None, *COLUMNS["kind"][1:]]}), path)
    for data in ("rows", "statistics"):
        result = contribute(monkeypatch, Provider(data), path, *WORDS)
        assert result.exit_code == 0, result.exception
        assert "left out: 1 row without a label" in result.output
        assert "2 features: f_a, f_b" in result.output
        assert "clipped" not in result.output


@pytest.mark.parametrize("data", ["rows", "statistics"])
def test_clipped_numbers_of_a_contribution_are_counted(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({**COLUMNS, "f_a": [200.0, -300.0, *COLUMNS["f_a"][2:]]}), path)
    result = contribute(monkeypatch, Provider(data), path, *WORDS)
    assert result.exit_code == 0, result.exception
    assert "clipped: 2 numbers beyond the range of the model's steps" in result.output


@pytest.mark.parametrize("data", ["rows", "statistics"])
def test_columns_are_found_by_the_names_of_the_models_features(
    data: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another order of columns in a later file taught the model swapped features."""
    turned = tmp_path / "turned.parquet"
    pq.write_table(pa.table({name: COLUMNS[name] for name in reversed(COLUMNS)}), turned)
    provider = Provider(data)
    provider.features = ["f_a", "f_b"]
    for path in (table, turned):
        result = contribute(monkeypatch, provider, path, *WORDS)
        assert result.exit_code == 0, result.exception
    assert provider.sent[0] == provider.sent[1]
    for words in ((*WORDS[:-1], "f_a"), (*WORDS[:-1], "f_a", "--features", "test")):
        refused = contribute(monkeypatch, provider, table, *words)
        assert "names other features than the model has" in said(refused)
    assert len(provider.sent) == 2


def test_a_table_is_contributed_as_features_of_the_models_extractor(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns may be as many as the model's, so that nobody else could notice."""
    parameters = {"inputs": "2", "outputs": "2", "scale": "1.0", "seed": "0"}
    opened = registry.get("random-relu", parameters)
    described = {"id": opened.id, "digest": opened.digest, "parameters": opened.parameters}
    provider = Provider("rows", described)
    result = contribute(monkeypatch, provider, table, *WORDS)
    assert result.exit_code == 0, result.exception
    plain = np.array([COLUMNS["f_a"], COLUMNS["f_b"]]).T
    with np.load(io.BytesIO(provider.sent[0])) as sent:
        assert np.array_equal(sent["features"], opened.extract(plain))


RANDOM: dict[str, Any] = {
    "id": "random-relu",
    "digest": "0" * 64,
    "parameters": {"inputs": "2", "outputs": "1000000000", "scale": "1.0", "seed": "0"},
}


@pytest.mark.parametrize(
    "change",
    [
        {"extractor": RANDOM},
        {"extractor": {**RANDOM, "parameters": {**RANDOM["parameters"], "outputs": "2"}}},
        {"extractor": {**RANDOM, "parameters": 7}},
        {"extractor": None},
        {"exponents": [0] * 10_001},
        {"exponents": ["0", "0"]},
        {"exponents": [True, 0]},
        {"classes": [str(place) for place in range(10_001)]},
        {"classes": "blue red"},
        {"bits": "16"},
    ],
)
def test_what_a_service_describes_takes_no_memory_of_its_choice(
    table: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """Random features are drawn, and sums allocated, in the sizes of the description."""

    class Lying(Provider):
        def manifest(self, ref: str) -> dict[str, Any]:
            known = super().manifest(ref)
            if isinstance(found := change.get("extractor"), dict) and found is not RANDOM:
                known["exponents"] = [0] * 3  # the extractor has two columns
            return {**known, **change}

    monkeypatch.setattr(registry, "get", lambda *_, **__: pytest.fail("it was built"))
    provider = Lying("statistics")
    result = contribute(monkeypatch, provider, table, *WORDS)
    assert isinstance(result.exception, UnusableError), result.exception
    assert "the service describes" in result.exception.detail
    assert provider.sent == []


class Tables(Provider):
    """Holds a model of a table, as `GET /manifest` shows it."""

    def __init__(self, **manifest: Any) -> None:
        super().__init__("rows")
        self.changes = manifest

    def manifest(self, ref: str) -> dict[str, Any]:
        return {
            "data": "rows",
            "family": "recipe",
            "classes": ["red", "green", "blue"],
            "columns": 3,
            "features": ["f_b", "f_a", "note"],
            "categories": {"note": [f"words {row}" for row in range(12)]},
            "weighted": False,
            **self.changes,
        }


def test_a_contribution_of_numbers_weights_and_categories(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = ("--record-id", "id", "--client", "ward", "--person", "email=email")
    recipe = Tables()
    found = contribute(monkeypatch, recipe, table, *owners, "--label", "kind")
    assert found.exit_code == 0, found.exception
    with np.load(io.BytesIO(recipe.sent[0])) as sent:
        assert sent["labels"].tolist() == [2, 0] * 6
        assert sent["features"].T.tolist() == [COLUMNS["f_b"], COLUMNS["f_a"], list(range(12))]
        assert "weights" not in sent
        assert sent[COLUMN + "email"][3].tobytes() == pack(digests("email", "p3@example.org"))
    assert b"example.org" not in recipe.sent[0]
    numbers = {"classes": [], "features": [], "categories": {}, "columns": 1, "family": "sums"}
    sums = Tables(**numbers, weighted=True)
    words = (*owners, "--label", "f_a", "--features", "f_b")
    found = contribute(monkeypatch, sums, table, *words, "--sample-weight", "f_a")
    assert found.exit_code == 0, found.exception
    with np.load(io.BytesIO(sums.sent[0])) as sent:
        assert sent["labels"].tolist() == COLUMNS["f_a"]
        assert sent["weights"].tolist() == COLUMNS["f_a"]  # quarters are multiples of 1/16
    for provider, more, problem in (
        (sums, (), "--sample-weight"),
        (Tables(**numbers), ("--sample-weight", "f_a"), "registered without weights"),
    ):
        refused = contribute(monkeypatch, provider, table, *words, *more)
        assert problem in said(refused)
    few = Tables(categories={"note": ["words 1"]})
    refused = contribute(monkeypatch, few, table, *owners, "--label", "kind")
    assert "note: 11 of 12 values are not among its categories" in said(refused)
    other = Tables(classes=["red", "green"])
    refused = contribute(monkeypatch, other, table, *owners, "--label", "kind")
    assert "6 rows have a label that is none of the model's classes" in said(refused)
    refused = contribute(monkeypatch, recipe, table, "--label", "kind", "--client", "ward")
    assert "--record-id" in said(refused)
    assert len(recipe.sent) == len(sums.sent) == 1


def test_statistics_are_those_of_the_same_rows_in_an_npz(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.npz"
    np.savez(
        path,
        features=np.array([COLUMNS["f_a"], COLUMNS["f_b"]]).T,
        labels=np.array([2, 0] * 6),
        clients=np.array(COLUMNS["ward"]),
        records=np.array(COLUMNS["id"]),
        identity_email=np.array(COLUMNS["email"]),
    )
    provider = Provider("statistics")
    assert contribute(monkeypatch, provider, table, *WORDS).exit_code == 0
    assert contribute(monkeypatch, provider, path).exit_code == 0
    assert provider.sent[0] == provider.sent[1]
    assert unpack_message(provider.sent[0], bits=16).records == COLUMNS["id"]


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        (
            {"kind": ["blue", "pink"] * 6},
            WORDS,
            "6 rows have a label that is none of the model",
        ),
        ({}, ("--label", "kind"), "name the columns of whose the rows are: --record-id and"),
        ({}, (), "name the columns of whose the rows are"),
        ({}, (*WORDS, "--holdout", "nowhere"), "nowhere: no such column"),
    ],
)
@pytest.mark.parametrize("data", ["rows", "statistics"])
def test_rows_that_no_contribution_can_have(
    data: str,
    changes: dict[str, Any],
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "rows.csv"
    pa_csv.write_csv(pa.table({**COLUMNS, **changes}), path)
    provider = Provider(data)
    result = contribute(monkeypatch, provider, path, *words)
    assert message in said(result)
    assert provider.sent == []


def test_a_service_gets_no_rows_where_only_statistics_may_be_sent(
    monkeypatch: pytest.MonkeyPatch, table: Path
) -> None:
    """Its manifest alone says whether rows are sent."""
    for data, code, sent in (("statistics", 0, True), ("rows", 1, False)):
        provider = Provider(data)
        done = contribute(monkeypatch, provider, table, *WORDS, "--statistics-only")
        assert (done.exit_code, bool(provider.sent)) == (code, sent), done.output
    assert "nothing was sent" in done.output


def test_held_out_rows_of_a_client_stay_here(table: Path) -> None:
    from workers.data.tables.labelled import Roles

    roles = Roles("kind", record_id="id", client="ward", features=("f_*",), holdout="test")
    assert load_rows(table, roles).records == COLUMNS["id"][2:]


def test_a_network_learns_the_rows_of_a_table(table: Path, service: Service) -> None:
    result = register(table, "--network", "logistic", *WORDS, "--holdout", "test")
    assert result.exit_code == 0, result.exception
    assert service.manifest["classes"] == ["blue", "red"]
    assert service.rows["inputs"].dtype == np.float32
    assert service.rows["inputs"][:, 0].tolist() == COLUMNS["f_a"][2:]
    assert service.owners() == {"w7": COLUMNS["id"][2:]}
    assert (COLUMN + "email") in service.rows
    words = (*WORDS[:4], *WORDS[6:])  # without --client
    assert register(table, "--network", "logistic", *words).exit_code == 0
    assert set(service.owners()) == {"all"}
    assert register(table, "--network", "logistic", *words, "--deal", 3).exit_code == 0
    assert len(service.owners()) == 3
    assert "leave --deal out" in said(register(table, *WORDS, "--deal", 3))
    assert "leave --class out" in said(register(table, *WORDS, "--class", "a"))


def test_a_network_computes_in_float32(tmp_path: Path, service: Service) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({**COLUMNS, "f_a": [1e300] * 12}), path)
    assert "exceeds the range of float32" in said(
        register(path, "--network", "logistic", *WORDS)
    )


def extract(data: Path, out: Path, *words: str) -> Result:
    arguments = ["extract", "--data", str(data), "--out", str(out), *words]
    return CliRunner().invoke(features, arguments)


def test_features_of_a_table_are_registered_as_an_npz(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    words = ("--extractor", "random-relu", "--parameter", "outputs=5", *WORDS)
    result = extract(table, out, *words, "--holdout", "test")
    assert result.exit_code == 0, result.exception
    found = load_npz(out)
    assert found.features.shape == (12, 5)
    assert found.label_names == ("blue", "red")
    assert found.is_test.tolist() == COLUMNS["test"]
    assert found.identities["email"].shape == (12, 68)
    assert b"example.org" not in out.read_bytes()
    assert extract(table, out, *words).exit_code == 0
    with np.load(out) as archive:
        assert "is_test" not in archive.files


def test_what_is_not_extracted_is_said(tmp_path: Path) -> None:
    path, out = tmp_path / "rows.parquet", tmp_path / "out.npz"
    pq.write_table(pa.table({**COLUMNS, "kind": [None, *COLUMNS["kind"][1:]]}), path)
    result = extract(path, out, "--extractor", "identity", "--label", "kind", *WORDS[-2:])
    assert result.exit_code == 0, result.exception
    assert "left out: 1 row without a label" in result.output
    assert "not used: id, ward, email, test, note" in result.output
    assert 'client: "all" for every row' in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--extractor", "identity", *WORDS, "--text", "note"),
            "give --text or --features, not both",
        ),
        (
            (
                *("--extractor", "identity", "--parameter", "dimension=1"),
                *("--label", "kind", "--text", "note"),
            ),
            "identity reads features: the file holds texts",
        ),
        (("--extractor", "identity", "--label", "kind", "--text", "f_a"), "f_a: numbers"),
        (("--extractor", "identity", "--text", "note"), "name the column of the classes"),
    ],
)
def test_texts_are_for_extractors_that_read_them(
    words: tuple[str, ...], message: str, table: Path, tmp_path: Path
) -> None:
    assert message in said(extract(table, tmp_path / "out.npz", *words))


def test_arrays_with_named_columns_are_the_same_table(
    table: Path, tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, allow_pickle=False, **{name: np.array(COLUMNS[name]) for name in COLUMNS})
    for provider in (Provider("rows"), Provider("statistics")):
        for data in (table, path):
            result = contribute(monkeypatch, provider, data, *WORDS)
            assert result.exit_code == 0, result.exception
        assert provider.sent[0] == provider.sent[1]
    found = []
    for data in (table, path):
        assert register(data, "--network", "logistic", *WORDS).exit_code == 0
        found.append((service.manifest, {k: v.tolist() for k, v in service.rows.items()}))
    assert found[0] == found[1]
    out = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for data, one in zip((table, path), out, strict=True):
        words = ("--extractor", "random-relu", "--parameter", "outputs=5", *WORDS)
        assert extract(data, one, *words).exit_code == 0
    assert out[0].read_bytes() == out[1].read_bytes()
    texts = ("--extractor", "identity", "--parameter", "dimension=1", "--label", "kind")
    assert "identity reads features: the file holds texts" in said(
        extract(path, out[0], *texts, "--text", "note")
    )


def test_columns_of_an_npz_that_has_none_are_refused(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made.npz"
    words = ("--extractor", "random-relu", "--parameter", "outputs=5", *WORDS)
    assert extract(table, made, *words).exit_code == 0
    named = ("--label", "labels", "--record-id", "records", "--client", "clients")
    refused = contribute(monkeypatch, Provider("statistics"), made, *named)
    assert "which a table would not name: omit the options that name columns" in said(refused)
    refused = register(made, "--format", "npz", "--label", "labels")
    assert "only a table has columns to name: omit --label" in said(refused)
