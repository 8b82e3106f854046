"""`lethe model push` keeps MLflow at the current version and leaves no withdrawn file there."""

import shutil
import socket
import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.errors import LetheError
from tests.installation import Installation, install
from tests.small import MODEL
from workers.cli.models import command as model
from workers.errors import RefusedError
from workers.mlflow_store import CERTIFICATE, HEAD, NUMBER, MlflowStore, certificate_tag

# MLflow's own calls of SQLAlchemy.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")


def tracking() -> str:
    """A different database for each test: MLflow keeps connections by URI."""
    return f"sqlite:///{Path.cwd()}/mlflow.db"


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's database without a row: its migrations take longer than a test."""
    import mlflow  # takes seconds: imported only by these tests

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    with closing(sqlite3.connect(path)) as connection, connection:
        # Its files would be written next to this one.
        connection.execute("DELETE FROM experiments")
    return path


@pytest.fixture
def here(
    settings: Settings,
    ledger: Ledger,
    tables: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Installation]:
    """A fitted model, and a directory with nothing but an empty database for MLflow."""
    with install(settings) as made:
        made.ready()
        monkeypatch.setattr("workers.cli.service.connect", lambda url: made.client())
        (tmp_path / "here").mkdir()
        shutil.copyfile(tables, tmp_path / "here" / "mlflow.db")
        monkeypatch.chdir(tmp_path / "here")
        yield made


def push() -> Result:
    return CliRunner().invoke(
        model.model, ["push", "--url", "http://x", MODEL, "--mlflow", tracking()]
    )


def registry() -> Any:
    import mlflow  # takes seconds: imported only by these tests

    return mlflow.MlflowClient(tracking_uri=tracking(), registry_uri=tracking())


def files() -> list[Path]:
    return sorted(path for path in Path("mlruns").rglob("*") if path.is_file())


def test_a_version_is_pushed_once_and_replaced_after_an_erasure(here: Installation) -> None:
    answer = push()
    assert answer.exit_code == 0, answer.output
    assert answer.stdout == f"{MODEL} version 1 is version 1 of {MODEL}\n"
    assert "already" in push().output
    first = here.caller.operator("GET", f"/v1/models/{MODEL}/versions/1/artifact").content
    assert first in [path.read_bytes() for path in files()]
    assert registry().get_model_version(MODEL, "1").tags[CERTIFICATE] == "none"
    here.caller.erase_records("r1")
    here.drain()
    answer = push()
    assert answer.exit_code == 0, answer.output
    assert "version 1 was withdrawn: deleted with its files" in answer.output
    kept = [path.read_bytes() for path in files()]
    assert first not in kept
    assert (
        here.caller.operator("GET", f"/v1/models/{MODEL}/versions/2/artifact").content in kept
    )
    current = registry().get_model_version_by_alias(MODEL, "current")
    assert [one.version for one in registry().search_model_versions("")] == [2]
    shown = here.caller.operator("GET", f"/v1/models/{MODEL}/versions/2").json()
    (certificate,) = shown["certificates"]
    assert current.tags[CERTIFICATE] == certificate["statement"]
    assert current.tags[HEAD] == shown["head"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_version_that_is_withdrawn_while_it_is_pushed_does_not_stay(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command, run after the erasure, found nothing to delete yet."""
    honest, beside = MlflowStore.push, list[Result]()

    def pushed(store: MlflowStore, *given: Any) -> str | None:
        monkeypatch.setattr(MlflowStore, "push", honest)
        here.caller.erase_records("r1")
        here.drain()
        beside.append(push())
        return honest(store, *given)

    monkeypatch.setattr(MlflowStore, "push", pushed)
    answer = push()
    assert beside[0].stdout == f"{MODEL} version 1 is version 2 of {MODEL}\n"
    withdrawn = here.caller.operator("GET", f"/v1/models/{MODEL}/versions/1").json()["head"]
    assert withdrawn not in [sha256(path.read_bytes()).hexdigest() for path in files()]
    assert "push again" in str(answer.exception)
    assert "already" in push().output
    assert registry().get_model_version_by_alias(MODEL, "current").tags[NUMBER] == "2"


def test_mlflow_itself_keeps_the_file_of_a_deleted_version(here: Installation) -> None:
    """The reason why `delete_withdrawn` deletes files itself. If this fails, it may do less."""
    push()
    found = registry().get_model_version(MODEL, "1")
    registry().delete_model_version(MODEL, "1")
    registry().delete_run(found.run_id)
    assert any(path.name == "model.safetensors" for path in files())


def test_a_store_that_keeps_a_withdrawn_file_is_named(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    push()
    here.caller.erase_records("r1")
    here.drain()
    module = "mlflow.store.artifact.local_artifact_repo.LocalArtifactRepository"
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.delete_artifacts", lambda *_: None)
        answer = push()
        assert isinstance(answer.exception, LetheError)
        assert "still has model/" in str(answer.exception)
    assert {one.version for one in registry().search_model_versions("")} == {1, 2}
    assert "version 1 was withdrawn" in push().output
    assert [one.version for one in registry().search_model_versions("")] == [2]


def test_the_run_of_another_experiment_is_not_deleted(here: Installation) -> None:
    push()
    other = registry().create_run(registry().create_experiment("of-another-team"))
    Path("their.txt").write_text("theirs")
    registry().log_artifact(other.info.run_id, "their.txt", "model")
    tags = dict(registry().get_model_version(MODEL, "1").tags)
    registry().create_model_version(
        MODEL, f"{other.info.artifact_uri}/model", other.info.run_id, tags=tags
    )
    here.caller.erase_records("r1")
    here.drain()
    answer = push()
    assert isinstance(answer.exception, LetheError)
    assert "another experiment" in str(answer.exception)
    assert any(path.name == "their.txt" for path in files())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("below", ["model", "model/deeper"])
def test_a_folder_with_files_that_were_not_pushed_is_not_deleted(
    here: Installation, below: str
) -> None:
    """MLflow's server says where a run's files are: it may name any folder that has a model/."""
    push()
    Path("their.txt").write_text("theirs")
    run = registry().get_model_version(MODEL, "1").run_id
    registry().log_artifact(run, "their.txt", below)
    here.caller.erase_records("r1")
    here.drain()
    answer = push()
    assert isinstance(answer.exception, LetheError)
    assert "that Lethe did not push" in str(answer.exception)
    assert any(path.name == "their.txt" for path in files())


def test_an_error_of_mlflow_does_not_repeat_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A timer that runs the command keeps what it prints."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for uri in (f"http://user:s3cret@127.0.0.1:{port}", f"ftp://user:s3cret@127.0.0.1:{port}"):
        with pytest.raises(RefusedError, match="--mlflow") as caught:
            MlflowStore(uri, "digits").delete_withdrawn("digits", [1])
        assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_the_tag_of_several_certificates_depends_on_each() -> None:
    digests = [sha256(bytes([number])).hexdigest() for number in range(3)]
    several = [{"statement": digest} for digest in digests]
    assert certificate_tag(several[:1]) == digests[0]
    tags = {
        certificate_tag(part) for part in (several, several[:2], several[1:], several[::-1])
    }
    assert len(tags) == 4
