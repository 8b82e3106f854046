"""Bodies that would exhaust the API: bombs that a key signed, and uploads that never end."""

import io
import socket
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import numpy as np

from lethe.signing.http import new_nonce, sign_request
from lethe.signing.keys import PrivateKey, generate_key
from tests.redteam.live.conftest import Target
from tests.small import DIMENSION, MODEL

PATH = f"/v1/models/{MODEL}/contributions"
UNPACKED = 900_000_000
MOST = 300 << 20  # bytes that the API may grow by; it grew by gigabytes
STALLED, STALLED_BYTES = 300, 3 << 20


def bomb() -> bytes:
    count = UNPACKED // (4 * DIMENSION)
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (count, DIMENSION)}
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("features.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, header)
            for start in range(0, 4 * DIMENSION * count, 1 << 20):
                member.write(bytes(min(1 << 20, 4 * DIMENSION * count - start)))
        for name in ("labels", "clients", "records"):
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array_header_1_0(member, {**header, "shape": (4,)})
                member.write(bytes(16))
    return stream.getvalue()


def signed(target: Target, body: bytes, key: PrivateKey, keyid: str) -> dict[str, str]:
    headers = {"Content-Type": "application/x-npz"}
    url = f"{target.processes.base_url}{PATH}"
    now = datetime.now(UTC)
    return headers | sign_request(
        "POST", url, headers, body, key, keyid, now=now, nonce=new_nonce()
    )


def post(target: Target, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """Return status and name of the answer; (0, "") if it came before the body was taken."""
    with suppress(httpx2.HTTPError):
        answer = httpx2.post(
            f"{target.processes.base_url}{PATH}", content=body, headers=headers, timeout=60
        )
        return answer.status_code, answer.json()["type"].rpartition(":")[2]
    return 0, ""


class Growth:
    """How far the API's peak of resident memory rises in a block."""

    def __init__(self, target: Target) -> None:
        assert target.processes.api is not None
        self._process = Path(f"/proc/{target.processes.api.pid}")

    def _bytes(self, field: str) -> int:
        lines = (self._process / "status").read_text().splitlines()
        (line,) = (one for one in lines if one.startswith(field))
        return int(line.split()[1]) * 1024

    def __enter__(self) -> "Growth":
        (self._process / "clear_refs").write_text("5")  # proc(5): the peak is what is now
        self._before = self._bytes("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.peak = self._bytes("VmHWM") - self._before


def test_a_signed_bomb_is_refused_unopened_and_cannot_be_replayed(target: Target) -> None:
    body = bomb()
    headers = signed(target, body, target.processes.key, "alice")
    with Growth(target) as growth:
        assert post(target, body, headers) in ((403, "key-not-entitled"), (0, ""))
        assert post(target, body, headers) in ((401, "signature-replayed"), (0, ""))
    assert growth.peak < MOST
    assert target.fsck() == 0


def test_three_bombs_of_a_client_at_once_leave_the_service_answering(target: Target) -> None:
    key = generate_key("ed25519")
    with target.processes.operator() as operator:
        operator.register_key(key, keyid="mallory", role="client")
    body = bomb()
    sent = [signed(target, body, key, "mallory") for _ in range(3)]
    done, answers = threading.Event(), []

    def ask() -> None:
        while not done.is_set():
            url = f"{target.processes.base_url}/healthz"
            answers.append(httpx2.get(url, timeout=30).status_code)
            done.wait(0.05)

    with Growth(target) as growth, ThreadPoolExecutor(4) as senders:
        asking = senders.submit(ask)
        found = set(senders.map(lambda headers: post(target, body, headers), sent))
        done.set()
        asking.result()
    assert found == {(422, "upload-invalid")}
    assert set(answers) == {200}
    assert growth.peak < MOST


def test_uploads_that_never_end_hold_little_and_shut_nobody_known_out(target: Target) -> None:
    place = urlsplit(target.processes.base_url)
    assert place.hostname is not None
    host, port = place.hostname, place.port or 80
    head = (
        f"POST /v1/certificates/verify HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {4 << 20}\r\n\r\n"
        '--x\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\n'
    ).encode()

    def stall(_: int) -> socket.socket:
        connection = socket.create_connection((host, port), timeout=30)
        connection.settimeout(0.5)
        with suppress(OSError):  # no more is taken
            connection.sendall(head + bytes(STALLED_BYTES))
        return connection

    with Growth(target) as growth:
        with ThreadPoolExecutor(50) as senders:
            held = list(senders.map(stall, range(STALLED)))
        try:
            assert httpx2.get(f"{target.processes.base_url}/healthz", timeout=30).is_success
            with target.processes.requester() as requester:
                requester.submit_erasure(MODEL, records=["r1"])
            with target.processes.operator() as operator:
                operator.register_key(generate_key("ed25519"), keyid="late")
        finally:
            for connection in held:
                connection.close()
    assert growth.peak < 2 * MOST
