"""What small bodies can make the API's process hold, and how long others wait meanwhile.

    python -m benchmarks.hostile_uploads [--stalled N] [--json FILE]

A service on this machine with a model of 256 columns. Sent are an .npz of 0.9 MB whose zeros
unpack to almost 1 GiB (signed by a requester's key, replayed, three at once, then by a client's
key), and uploads to POST /v1/certificates/verify that stop after 3 MiB. Measured are the growth
of the API's peak resident set (VmHWM, which Linux can reset) and the slowest of the /healthz
calls sent every 50 ms.
"""

import argparse
import io
import json
import socket
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import numpy as np

from lethe.client import Client
from lethe.signing.http import new_nonce, sign_request
from lethe.signing.keys import PrivateKey, generate_key
from workers.data.digits import load_digits
from workers.data.extractors.random_relu import RandomRelu
from workers.demo.service import LocalService
from workers.registration.ridge import prepare

COLUMNS = 256
UNPACKED = 1_000_000_000  # bytes, below the default of LETHE_MAX_UPLOAD_BYTES
STALLED_BYTES = 3 << 20
SETTLE = 5.0  # seconds that stalled uploads are watched


def bomb() -> bytes:
    """Return an .npz of zeros: well formed, of the model's width, a thousand times its size."""
    rows = UNPACKED // (4 * COLUMNS)
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, COLUMNS)}
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        with archive.open("features.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, header)
            zeros = bytes(1 << 20)
            for start in range(0, 4 * COLUMNS * rows, len(zeros)):
                member.write(zeros[: 4 * COLUMNS * rows - start])
        for name, array in (
            ("labels", np.zeros(rows, np.uint8)),
            ("clients", np.full(rows, "c")),
            ("records", np.arange(rows)),
        ):
            with archive.open(f"{name}.npy", "w") as member:
                np.save(member, array)
    return stream.getvalue()


class Watch:
    """Peak growth of a process and the slowest answer of /healthz, in one block."""

    def __init__(self, pid: int, url: str) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._clear = Path(f"/proc/{pid}/clear_refs")
        self._url = url
        self._done = threading.Event()
        self.slowest = 0.0

    def _kib(self, field: str) -> int:
        (line,) = (x for x in self._status.read_text().splitlines() if x.startswith(field))
        return int(line.split()[1])

    def _ask(self) -> None:
        while not self._done.is_set():
            begun = time.perf_counter()
            try:
                answered = httpx2.get(f"{self._url}/healthz", timeout=60).status_code
            except httpx2.HTTPError:
                answered = 0
            waited = time.perf_counter() - begun
            self.slowest = max(self.slowest, waited if answered == 200 else float("inf"))
            self._done.wait(0.05)

    @contextmanager
    def watching(self, name: str, figures: dict[str, float]) -> Iterator[None]:
        """Write the growth in MiB and the slowest answer in seconds under `name`."""
        self._clear.write_text("5")  # proc(5): sets the peak to what is resident now
        before, self.slowest = self._kib("VmRSS"), 0.0
        self._done.clear()
        asking = threading.Thread(target=self._ask)
        asking.start()
        try:
            yield
        finally:
            self._done.set()
            asking.join()
        figures[f"{name}: peak growth MiB"] = round((self._kib("VmHWM") - before) / 1024, 1)
        figures[f"{name}: slowest /healthz s"] = round(self.slowest, 2)


def signed_post(
    url: str, path: str, body: bytes, key: PrivateKey, keyid: str
) -> dict[str, str]:
    """Return the headers of a signed upload."""
    headers = {"Content-Type": "application/x-npz"}
    return headers | sign_request(
        "POST",
        f"{url}{path}",
        headers,
        body,
        key,
        keyid,
        now=datetime.now(UTC),
        nonce=new_nonce(),
    )


def answers(send: Callable[[dict[str, str]], int], many: list[dict[str, str]]) -> str:
    """Return the statuses of calls sent at once, by their headers, with how many had each."""
    with ThreadPoolExecutor(len(many)) as senders:
        found = Counter(senders.map(send, many))
    return " ".join(f"{status}x{times}" for status, times in sorted(found.items()))


def stall(url: str) -> socket.socket:
    """Return a connection that has sent 3 MiB of the 4 MiB it announced, as far as is taken."""
    place = urlsplit(url)
    assert place.hostname is not None
    connection = socket.create_connection((place.hostname, place.port or 80), timeout=10)
    part = b'--x\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\n'
    head = (
        f"POST /v1/certificates/verify HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {4 << 20}\r\n\r\n"
    )
    connection.settimeout(0.5)
    with suppress(OSError):  # not taken, or cut
        connection.sendall(head.encode() + part + bytes(STALLED_BYTES))
    return connection


def measure(folder: Path, stalled: int) -> tuple[dict[str, float], dict[str, str]]:
    """Return figures and statuses by what was sent."""
    (folder / "data").mkdir()
    service = LocalService(folder / "data", folder / "service.log")
    service.run_cli("migrate")
    service.run_cli("log", "init")
    token = service.run_cli("token", "new", "--scope", "operator", "--name", "b").split()[-1]
    url = service.start()
    key, client_key = generate_key("ed25519"), generate_key("ed25519")
    prepared = prepare(load_digits(), RandomRelu(64, COLUMNS, 0, 1 / 16), ref="digits")
    figures: dict[str, float] = {}
    statuses: dict[str, str] = {}
    body, path = bomb(), "/v1/models/digits/contributions"
    figures["body MB"] = round(len(body) / 1e6, 2)
    try:
        with Client(url, "requester", key, token=token) as client:
            client.register_key(key, keyid="requester")
            client.register_key(client_key, keyid="client", role="client")
            client.register_model(prepared.manifest, prepared.npz)
            while client.model("digits")["state"] == "registered":
                time.sleep(0.05)
        watch = Watch(service.pid, url)

        def post(headers: dict[str, str]) -> int:
            try:
                return httpx2.post(
                    f"{url}{path}", content=body, headers=headers, timeout=120
                ).status_code
            except httpx2.HTTPError:  # the answer came before the body was taken
                return 0

        once = signed_post(url, path, body, key, "requester")
        for name in ("one", "the same replayed"):
            with watch.watching(name, figures):
                statuses[name] = str(post(once))
        for name, signer, keyid in (
            ("three at once", key, "requester"),
            ("three at once by a client", client_key, "client"),
        ):
            with watch.watching(name, figures):
                many = [signed_post(url, path, body, signer, keyid) for _ in range(3)]
                statuses[name] = answers(post, many)
        name = f"{stalled} stalled"
        with watch.watching(name, figures):
            with ThreadPoolExecutor(50) as senders:
                held = list(senders.map(lambda _: stall(url), range(stalled)))
            time.sleep(SETTLE)
        for connection in held:
            connection.close()
    finally:
        service.stop()
    return figures, statuses


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stalled", type=int, default=300)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures, statuses = measure(Path(folder), arguments.stalled)
    for name, value in figures.items():
        print(f"{name:52} {value:10.2f}")
    for name, status in statuses.items():
        print(f"{name + ': statuses':52} {status:>10}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({**figures, **statuses}, indent=2) + "\n")


if __name__ == "__main__":
    main()
