"""A policy in a JSON file of any layout."""

from pathlib import Path
from typing import TYPE_CHECKING

from lethe import canonical

if TYPE_CHECKING:
    from workers.judge.policy.policy import Policy


def load(file: Path, *, or_model: bool = False) -> "Policy":
    """Return the policy in a file, in whatever layout its JSON has. Raises RefusedError.

    or_model: the file may be the answer of `GET /v1/models/{ref}`, which has it in `config`.
    """
    from workers.errors import RefusedError
    from workers.judge.policy.document import from_document

    try:
        document = canonical.loads(file.read_text(encoding="utf-8"))
    except canonical.DuplicateKeyError:
        raise RefusedError("the file has a name twice in one object: keep one") from None
    except (ValueError, RecursionError):
        raise RefusedError(
            "the file is no JSON: write one with `lethe policy default`"
        ) from None
    if isinstance(document, dict) and isinstance(config := document.get("config"), dict):
        if "policy" not in config:
            raise RefusedError(
                "the file is the registration of a model without a policy: only "
                "networks have one; write one with `lethe policy default`"
            )
        if not or_model:
            raise RefusedError(
                "the file is the registration of a model: give only its member config.policy"
            )
        document = config["policy"]
    return from_document(document)
