"""Versions in an MLflow model registry: pushed with their certificates, deleted for good.

MLflow 3.17 keeps a version's files after `delete_model_version`, and its run's files after
`delete_run`: those calls alone would leave a copy of the model that an erasure withdrew. So
files are deleted from the artifact store first, their absence is checked, and only then is the
registry's entry deleted. A crash in between leaves the entry, and the next call starts over.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from lethe import canonical
from workers.errors import ModelError, RefusedError
from workers.libraries import require

EXPERIMENT, FOLDER, ALIAS = "lethe", "model", "current"
_PUSHED = re.compile(r"model\.[A-Za-z0-9]+(\.sig)?|certificates\.json")  # file names
# Tags of an MLflow version.
MODEL, NUMBER, HEAD, CERTIFICATE = (
    f"lethe.{name}" for name in ("model", "version", "head", "certificate")
)


class StillStoredError(RefusedError):
    """The artifact store still has files of a version that should have been deleted."""


class PushError(RefusedError):
    """MLflow, or the store of its files, did not do what it was asked to."""


@contextmanager
def _named() -> Iterator[None]:
    """Name an error by its type: its text repeats the URI, with user and password."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        raise PushError(
            f"MLflow did not take it ({type(error).__name__}): check the address, user and "
            "password of --mlflow, and the server's log; then push again"
        ) from None


class MlflowStore:
    """One registered model of an MLflow server or database; `tracking` is its URI.

    Every call raises PushError if MLflow or the store of its files fails.
    """

    @_named()
    def __init__(self, tracking: str, name: str) -> None:
        mlflow = require("mlflow", "mlflow")
        self.name = name
        self._client = mlflow.MlflowClient(tracking_uri=tracking, registry_uri=tracking)

    @_named()
    def push(
        self,
        ref: str,
        version: Mapping[str, Any],
        files: Mapping[str, bytes],
    ) -> str | None:
        """Store a version, as `getVersion` shows it, and make it `current`.

        files: by name. Returns the version's number in MLflow, or None if it was stored
        already.
        """
        names = {MODEL: ref, NUMBER: str(version["number"]), HEAD: version["head"]}
        known = [one for one in self._versions(ref) if names.items() <= one.tags.items()]
        if known:
            self._client.set_registered_model_alias(self.name, ALIAS, known[0].version)
            return None
        self._named()
        certificates = version["certificates"]
        run = self._client.create_run(self._experiment(), run_name=f"{ref}@{version['number']}")
        with tempfile.TemporaryDirectory() as folder:
            listed = {"certificates.json": json.dumps(certificates, indent=2).encode()}
            for name, data in {**files, **listed}.items():
                path = Path(folder, name)
                path.write_bytes(data)
                self._client.log_artifact(run.info.run_id, str(path), FOLDER)
        self._client.set_terminated(run.info.run_id)
        made = self._client.create_model_version(
            self.name,
            f"{run.info.artifact_uri}/{FOLDER}",
            run.info.run_id,
            tags={**names, CERTIFICATE: certificate_tag(certificates)},
        )
        self._client.set_registered_model_alias(self.name, ALIAS, made.version)
        return str(made.version)

    @_named()
    def delete_withdrawn(self, ref: str, withdrawn: Sequence[int]) -> list[str]:
        """Delete files, runs and entries of a model's withdrawn versions.

        Returns the numbers that MLflow had for them. Raises StillStoredError if the artifact
        store still has files of one of them, or others beside them.
        """
        numbers = {str(number) for number in withdrawn}
        gone = [one for one in self._versions(ref) if one.tags.get(NUMBER) in numbers]
        for one in gone:
            run = self._client.get_run(one.run_id)
            # The tags can be edited in MLflow: a forged one could name a run of another
            # experiment.
            if run.info.experiment_id != self._experiment():
                raise StillStoredError(
                    f"MLflow version {one.version} has the tags of {ref}, and a run of another "
                    "experiment: look who made it; nothing was deleted"
                )
            files = _artifacts(run.info.artifact_uri)
            for file in files.list_artifacts(FOLDER):
                # The server says where the files are: it could name any folder here.
                if file.is_dir or not _PUSHED.fullmatch(file.path.rpartition("/")[2]):
                    raise StillStoredError(
                        f"MLflow version {one.version} has {file.path}, that Lethe did not "
                        "push: look who put it there and delete it, then push again; nothing "
                        "was deleted"
                    )
            files.delete_artifacts(FOLDER)
            if left := files.list_artifacts(FOLDER):
                raise StillStoredError(
                    f"MLflow's artifact store still has {left[0].path} of version "
                    f"{one.tags[NUMBER]}: delete it there, then push again"
                )
            self._client.delete_model_version(self.name, one.version)
            self._client.delete_run(one.run_id)
        return [str(one.version) for one in gone]

    def _versions(self, ref: str) -> list[Any]:
        quoted = self.name.replace("'", "\\'")
        found = self._client.search_model_versions(f"name = '{quoted}'", max_results=10_000)
        return [one for one in found if one.tags.get(MODEL) == ref]

    def _experiment(self) -> str:
        known = self._client.get_experiment_by_name(EXPERIMENT)
        if known is not None:
            return str(known.experiment_id)
        return str(self._client.create_experiment(EXPERIMENT))

    def _named(self) -> None:
        if not self._client.search_registered_models(f"name = '{self.name}'"):
            self._client.create_registered_model(self.name)


def certificate_tag(certificates: Sequence[Mapping[str, Any]]) -> str:
    """Return the statement's digest of a version's one certificate, `none` without any.

    For several certificates of one update it is the digest of the canonical JSON list of their
    digests, since a tag holds only 5,000 characters.
    """
    digests = [str(one["statement"]) for one in certificates]
    if len(digests) < 2:
        return digests[0] if digests else "none"
    return sha256(canonical.encode(digests)).hexdigest()


def _artifacts(root: str) -> Any:
    registry = require("mlflow.store.artifact.artifact_repository_registry", "mlflow")
    return registry.get_artifact_repository(root)
