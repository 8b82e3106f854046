"""Scripts on the wire: an operator's training program and everything that determines it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from app.schemas.base import Wire
from app.schemas.families.tables import TableManifest
from app.schemas.models import Name, Sha256Hex
from lethe.catalogue import ScriptMethod

_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}"
FileName = Annotated[str, StringConstraints(pattern=rf"^{_PART}(/{_PART}){{0,4}}$")]
Source = Annotated[str, StringConstraints(max_length=1 << 17, pattern=r"^[^\x00]*$")]
MOST_BYTES = 1 << 17  # of all files together: each job reads them with the registration


class ScriptDocument(Wire):
    """A program as it is run: `python ENTRY ROWS MODEL SEED`.

    files: their texts, by name. lock: the one that names the distributions it may import, as
    NAME==VERSION. output: form of the file that it writes. threads: of numeric libraries.
    tolerance: largest relative difference of a tensor between two runs; left out, two runs must
    write equal bytes. weights: SHA-256 of a model that was trained elsewhere, which the first
    version is compared with. predict: the file that is run to predict held-out rows; without
    one a model in ONNX is run by onnxruntime, and one in safetensors takes no held-out rows.
    """

    files: dict[FileName, Source] = Field(min_length=1, max_length=64)
    entry: FileName
    lock: FileName
    output: Literal["safetensors", "onnx"] = "safetensors"
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    threads: int = Field(default=1, ge=1, le=256)
    tolerance: float | None = Field(default=None, gt=0, le=0.1, allow_inf_nan=False)
    weights: Sha256Hex | None = None
    predict: FileName | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        named = {"entry": self.entry, "lock": self.lock, "predict": self.predict}
        for role, name in named.items():
            if name is not None and name not in self.files:
                raise ValueError(f"{role}: must be the name of one of files")
            if role != "lock" and name is not None and not name.endswith(".py"):
                raise ValueError(f"{role}: must be a Python file, whose name ends in .py")
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in self.files.values())
        if size > MOST_BYTES:
            raise ValueError(
                f"files: have {size} bytes, more than {MOST_BYTES}: leave data and the "
                "hashes of the lock file out"
            )
        folders = {f"{name}/" for name in self.files}
        if any(name.startswith(tuple(folders)) for name in self.files):
            raise ValueError("files: a name is both a file and a folder")
        return self

    def pinned(self) -> dict[str, Any]:
        """Return the form that is registered and logged."""
        tolerance = None if self.tolerance is None else self.tolerance.hex()
        return {**self.model_dump(), "tolerance": tolerance}


def predicts(config: Mapping[str, Any]) -> bool:
    """Return whether its models predict here: of a script, in ONNX or with a program."""
    script = config.get("script")
    return script is None or script["output"] == "onnx" or script["predict"] is not None


def runs_script(config: Mapping[str, Any]) -> bool:
    """Return whether an operator's program fits its models: a script, or shards of one."""
    return "script" in config


def check_names(classes: list[str]) -> None:
    """Raise ValueError for invalid names of classes."""
    if len(classes) == 1 or len(set(classes)) != len(classes):
        raise ValueError("classes: name at least two, each once, or none for numbers")


class NewScript(TableManifest):
    """The "manifest" part of POST /v1/models for a program of the operator's.

    classes: names of labels, or none where they are numbers. An erasure runs the program again
    on the retained rows.
    """

    family: Literal["script"]
    method: ScriptMethod = "rerun"
    classes: list[Name] = Field(default_factory=list, max_length=10_000)
    script: ScriptDocument

    @model_validator(mode="after")
    def _classes_once(self) -> Self:
        check_names(self.classes)
        return self

    def pinned(self) -> dict[str, Any]:
        """Return the pinned configuration with the program's text; its digest is logged."""
        number, script = len(self.classes), self.script.pinned()
        return self.of_rows(**self.pinned_columns(), classes=number, script=script)
