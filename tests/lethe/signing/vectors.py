"""Record the tables as tests/vectors/http-signatures/*.json, for other implementations.

Run `python -m tests.lethe.signing.vectors` after changing a table; a test compares the two.
"""

import json
from pathlib import Path
from typing import Any

from lethe.signing.keys import algorithm_of, public_pem
from tests.lethe.signing import (
    accepted_cases,
    refused_cases,
)
from tests.lethe.signing.case_tools import CASES, KEYS, Case
from tests.lethe.signing.signer import NOW, b64

VECTORS = Path(__file__).parents[2] / "vectors" / "http-signatures"
TABLES = (accepted_cases, refused_cases)  # importing them fills CASES


def as_vector(item: Case) -> dict[str, Any]:
    return {
        "desc": item.desc,
        "wantErr": item.want,
        "now": NOW,
        "keys": {
            keyid: {"algorithm": algorithm_of(key), "publicKey": public_pem(key)}
            for keyid, key in KEYS.items()
        },
        "request": {
            "method": item.request.method,
            "targetUri": item.request.uri,
            "headers": [list(pair) for pair in item.request.headers],
            "body": b64(item.request.body),
        },
    }


def main() -> None:
    VECTORS.mkdir(parents=True, exist_ok=True)
    for item in CASES:
        text = json.dumps(as_vector(item), indent=1) + "\n"
        (VECTORS / f"{item.name}.json").write_text(text)


if __name__ == "__main__":
    main()
