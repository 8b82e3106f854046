"""A small federation, its registration, and a client that signs as a requester would."""

import io
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from httpx2 import Response
from starlette.testclient import TestClient

from lethe.signing.http import new_nonce, sign_request
from lethe.signing.keys import PrivateKey, generate_key, public_pem
from workers.data.extractors.identity import Identity

MODEL = "small"
DIMENSION, CLASSES, ROWS, CLIENTS = 6, 3, 40, 5


def rows(seed: int = 0, count: int = ROWS, first: int = 0) -> dict[str, Any]:
    """Return the arrays of a registration; record i of client i % CLIENTS is "r<i>"."""
    rng = np.random.default_rng(seed)
    return {
        "features": rng.normal(size=(count, DIMENSION)).astype(np.float32),
        "labels": rng.integers(CLASSES, size=count),
        "clients": np.array([f"c{i % CLIENTS}" for i in range(first, first + count)]),
        "records": np.array([f"r{i}" for i in range(first, first + count)]),
    }


def pack(arrays: dict[str, Any]) -> bytes:
    """Return arrays as the bytes of an .npz file."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=True, **arrays)
    return stream.getvalue()


def manifest(**changes: Any) -> dict[str, Any]:
    """Return a registration's manifest."""
    return {
        "ref": MODEL,
        "method": "ridge-exact",
        "classes": [str(number) for number in range(CLASSES)],
        "exponents": [-12] * DIMENSION,
        "bits": 16,
        "penalty": 0.5,
        "extractor": {"id": "identity", "digest": Identity(DIMENSION).digest},
        **changes,
    }


@dataclass
class Caller:
    """Calls the API in one process; signs with `key` where a call must be signed."""

    http: TestClient
    token: str
    keyid: str = "alice"
    key: PrivateKey = field(default_factory=lambda: generate_key("ed25519"))

    def operator(self, method: str, path: str, **arguments: Any) -> Response:
        """Call with the operator's token."""
        headers = {"authorization": f"Bearer {self.token}", **arguments.pop("headers", {})}
        return self.http.request(method, path, headers=headers, **arguments)

    def register_key(self, **changes: Any) -> Response:
        """Register this caller's key."""
        body = {
            "keyid": self.keyid,
            "algorithm": "ed25519",
            "public_key": public_pem(self.key),
            "role": "requester",
            **changes,
        }
        return self.operator("POST", "/v1/keys", json=body)

    def register_model(self, arrays: dict[str, Any] | None = None, **changes: Any) -> Response:
        """Register the small model."""
        files = {"data": ("rows.npz", pack(arrays or rows()))}
        data = {"manifest": json.dumps(manifest(**changes))}
        return self.operator("POST", "/v1/models", files=files, data=data)

    def signed(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
        age: timedelta = timedelta(0),
        nonce: str | None = None,
        target: str | None = None,
    ) -> Response:
        """Send a signed call; `target` is what is signed where it is not what is sent."""
        sent = dict(headers or {})
        if body:
            sent["Content-Type"] = content_type
        url = f"{self.http.base_url}{path}"
        sent |= sign_request(
            method,
            target or url,
            sent,
            body,
            self.key,
            self.keyid,
            now=datetime.now(UTC) - age,
            nonce=nonce or new_nonce(),
        )
        return self.http.request(method, path, headers=sent, content=body or None)

    def erase(self, scope: dict[str, Any], **arguments: Any) -> Response:
        """Submit an erasure request."""
        fields = arguments.pop("fields", {})
        body = json.dumps({"model": MODEL, "scope": scope, **fields}).encode()
        return self.signed("POST", "/v1/requests", body, **arguments)

    def erase_records(self, *records: str, **arguments: Any) -> Response:
        """Submit an erasure request for some records."""
        return self.erase({"level": "sample", "records": list(records)}, **arguments)
