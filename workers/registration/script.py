"""Pack labelled rows and a training program as a registration for POST /v1/models."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe import canonical
from workers.errors import RefusedError
from workers.registration.recipe import (
    RecipeRegistration,
    RecipeRows,
    columns_of,
    pack,
    read_recipe,
)

DESCRIPTION = "script.json"
LOCAL = ("files", "numbers")  # members of the description that are not sent as they are


def read_script(path: Path) -> tuple[dict[str, Any], bool]:
    """Return the document of a program, and whether its labels are numbers.

    path: its description, or the folder that has one as script.json. The files that it names
    are beside it: the entry, the lock file, `predict`, and those in its list `files`.

    Raises RefusedError, naming the file, if one is missing or not text.
    """
    description = path / DESCRIPTION if path.is_dir() else path
    if not description.is_file():
        raise RefusedError(f"{path.name}: has no {DESCRIPTION}, see docs/scripts.md")
    said = read_recipe(description)
    more = said.get("files", [])
    named = [said.get("entry"), said.get("lock"), *(more if isinstance(more, list) else [None])]
    if not all(isinstance(one, str) for one in named):
        raise RefusedError(
            f'{description.name}: needs "entry" and "lock", names of files; "files" is a list '
            "of further ones"
        )
    if isinstance(said.get("predict"), str):
        named.append(said["predict"])
    document = {name: value for name, value in said.items() if name not in LOCAL}
    document["files"] = {name: _text(description.parent, name) for name in named}
    return document, bool(said.get("numbers", False))


def _text(folder: Path, name: str) -> str:
    file = folder / name
    if not file.resolve().is_relative_to(folder.resolve()):
        raise RefusedError(f"{name}: name files in the folder of the description only")
    try:
        return file.read_bytes().decode("utf-8")
    except OSError:
        raise RefusedError(
            f"{name}: cannot be read; it must be beside the description"
        ) from None
    except UnicodeDecodeError:
        raise RefusedError(f"{name}: must be a text in UTF-8") from None


def prepare_script(
    rows: RecipeRows, document: Mapping[str, Any], *, ref: str, weights: bytes | None = None
) -> RecipeRegistration:
    """Pack the rows that are not held out, with the manifest for them.

    document: of `read_script`; its `categories` are registered with the names of the features.
    weights: of a model trained elsewhere; their digest is registered.
    """
    script = dict(document)
    columns = columns_of(rows, script.pop("categories", {}))
    if weights is not None:
        script["weights"] = hashlib.sha256(weights).hexdigest()
    manifest = {"family": "script", "ref": ref, **columns, "script": script}
    canonical.encode(manifest)  # finds text that is not valid Unicode
    return pack(rows, manifest)
