"""`lethe model show` describes a model, `lethe model schema` a manifest."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.ledger.sequencer import Ledger
from app.schemas.families.manifests import MANIFESTS
from app.settings import Settings
from lethe.client import Client
from tests.installation import Installation, install
from tests.schemas import validator
from tests.small import MODEL, manifest
from workers.cli.models import command as model
from workers.cli.models.show import described


@pytest.fixture
def here(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    with install(settings) as made:
        made.ready()
        monkeypatch.setattr("workers.cli.service.connect", lambda url: made.client())
        yield made


def test_each_part_of_a_figure_has_a_line() -> None:
    figure = {"metric": "accuracy", "value": "0.8750", "rows": 40, "withheld": None}
    version = {
        "number": 1,
        "retained_count": 160,
        "log_index": 3,
        "created_at": "2026-11-23T22:52:44Z",
        "head": "ab",
        "withdrawn_at": None,
        "held_out": {**figure, "parts": {"shard 0": "0.8750", "shard 1": "no rows"}},
    }
    model = {
        "ref": "m",
        "state": "ready",
        "failure": None,
        "method": "refit-shards",
        "classes": ["no", "yes"],
        "config": {"family": "shards"},
        "current_version": 1,
        "extractor": None,
        "decide": "review",
        "cooling_off": 0,
    }
    *_, row, first, second = described(model, [version])
    assert "accuracy 0.8750 (40)" in row
    assert [first, second] == ["version 1 shard 0: 0.8750", "version 1 shard 1: no rows"]


def test_a_reason_cannot_repaint_the_terminal(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as what a script said before it failed."""
    shown = Client.model
    said = {"failure": "\x9b8m hidden\u202e"}
    monkeypatch.setattr(Client, "model", lambda *args: {**shown(*args), **said})
    done = run("show", "--url", "http://x", MODEL)
    assert done.exit_code == 0, done.output
    assert "failure     \ufffd8m hidden\ufffd" in done.output


def run(*words: str) -> Result:
    return CliRunner().invoke(model.model, list(words))


def test_a_model_is_shown_with_its_versions(here: Installation) -> None:
    wanted = manifest()
    (version,) = here.caller.http.get(
        f"/v1/models/{MODEL}/versions", headers={"authorization": f"Bearer {here.caller.token}"}
    ).json()["items"]
    lines = run("show", "--url", "http://x", MODEL).output.splitlines()
    assert lines[0] == f"{MODEL}: ready, version 1"
    assert lines[1] == f"family      ridge, method {wanted['method']}"
    assert lines[2] == f"classes     {len(wanted['classes'])}: {', '.join(wanted['classes'])}"
    assert lines[3] == f"rows        {version['retained_count']}"
    assert (
        lines[4]
        == f"extractor   {wanted['extractor']['id']}, sha256 {wanted['extractor']['digest']}"
    )
    assert lines[5].startswith(
        f"quantiser   {wanted['bits']} bits, {len(wanted['exponents'])} columns"
    )
    assert lines[6] == f"penalty     {wanted['penalty']:g}"
    assert lines[-1].split() == [
        "1",
        str(version["retained_count"]),
        str(version["log_index"]),
        version["created_at"][:19] + "Z",
        "-",
        version["head"],
    ]


def test_models_are_listed(here: Installation) -> None:
    done = run("list", "--url", "http://x")
    assert done.exit_code == 0, done.exception
    assert done.output.splitlines()[-1].split() == [MODEL, "ready", "1"]
    (row,) = run("list", "--url", "http://x", "--json").output.splitlines()
    assert json.loads(row)["ref"] == MODEL


def test_all_of_it_as_json(here: Installation) -> None:
    shown = json.loads(run("show", "--url", "http://x", MODEL, "--json").output)
    assert shown["ref"] == MODEL
    assert [version["number"] for version in shown["versions"]] == [1]


def test_an_unknown_model_is_a_problem(here: Installation) -> None:
    assert run("show", "--url", "http://x", "nowhere").exit_code != 0


def test_a_failed_model_has_its_reason_and_no_version() -> None:
    from workers.cli.models.show import described

    failed: dict[str, Any] = {
        "ref": "m", "state": "failed", "failure": "the penalty is too small", "method": "refit",
        "classes": [], "extractor": None, "config": {"family": "recipe"}, "current_version": None,
        "decide": "review", "cooling_off": 86_400,
    }  # fmt: skip
    assert list(described(failed, [])) == [
        "m: failed, no version yet",
        "failure     the penalty is too small",
        "family      recipe, method refit",
        "requests    executed after review, by keys bound to what they erase at once, cooling "
        "off for 86,400 s",
    ]


@pytest.mark.parametrize("family", MANIFESTS)
def test_each_family_has_the_schema_of_the_openapi_document(
    family: str, here: Installation
) -> None:
    document = json.loads(run("schema", family).output)
    validator(document)
    name = MANIFESTS[family].__name__
    parts = here.caller.http.get("/openapi.json").json()["components"]["schemas"]
    moved = json.loads(json.dumps(document).replace("#/$defs/", "#/components/schemas/"))
    definitions = moved.pop("$defs", {})
    del moved["$schema"]
    assert parts[name] == moved
    assert {key: parts[key] for key in definitions} == definitions


def test_a_schema_takes_the_manifests_that_the_service_takes() -> None:
    schema = validator(json.loads(run("schema", "ridge").output))
    assert schema.is_valid(manifest())
    bad: list[dict[str, Any]] = [
        {**manifest(), "penalty": 0},
        {**manifest(), "bits": 17},
        {**manifest(), "classes": ["one"]},
        {**manifest(), "surprise": 1},
        {name: value for name, value in manifest().items() if name != "exponents"},
    ]
    assert not any(schema.is_valid(one) for one in bad)


def test_an_unknown_family_is_refused() -> None:
    result = run("schema", "oracle")
    assert result.exit_code == 2
    assert "choose one of ridge, network" in result.output
