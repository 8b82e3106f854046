"""Clients and operators of a soak: each does one kind of thing, again and again.

They behave as the client guides say: a call that got no answer is made again, with the same
Idempotency-Key, at whichever API process answers. What they are told is done is kept in
`Load.told`, and compared with the log in the end.
"""

import base64
import itertools
import shutil
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

import httpx2

from benchmarks.faults.acknowledged import Acknowledged
from benchmarks.soak.service import KILLED, LASTING, Service
from lethe import Client, verify
from lethe.certificates.keys import read_log_key
from lethe.client.errors import ClientError, ProblemError, UnreachableError
from lethe.client.retry import RetryPolicy
from lethe.errors import LetheError
from lethe.signing.keys import generate_key
from tests.small import MODEL, manifest, pack, rows

T = TypeVar("T")
POOL = 600  # records of the model; what is erased is contributed anew
PIECE = 60  # records of a contribution
WITHDRAWN = 8  # every so many requests one is withdrawn at once
RETRY = RetryPolicy(tries=3, longest_s=1.0)
PATIENCE_S = 300.0  # until what was accepted must have ended
FINAL = ("certified", "withdrawn")  # what requests may end in


class Load:
    """All that is done to a service.

    counts: of what was done. told: what was acknowledged. wrong: what should not happen.
    """

    def __init__(self, service: Service, rate: float) -> None:
        self.service, self.rate = service, rate
        self.counts: Counter[str] = Counter()
        self.told: Acknowledged = []
        self.wrong: list[str] = []
        self.open: deque[str] = deque()  # ids of requests that were accepted
        self._records: deque[str] = deque()
        self._learning: dict[str, list[str]] = {}  # contribution to its records
        self._names = itertools.count(POOL)
        self._submitted = itertools.count(1)
        self._models = itertools.count(1)
        self._read_until = 0
        self._key, self._client_key = generate_key("ed25519"), generate_key("ed25519")
        self._ended = threading.Event()
        self._clients = threading.local()
        self._opened = ExitStack()

    def prepare(self) -> None:
        """Register keys and the model whose records come and go."""
        self._again(lambda client: client.register_key(self._key, keyid="requester"))
        self._again(
            lambda client: client.register_key(self._client_key, "client", keyid="client")
        )
        self._register(MODEL, POOL)
        self._records.extend(f"r{number}" for number in range(POOL))

    def run(self, seconds: float) -> None:
        """Load the service for so long, then until everything that was accepted has ended."""
        repeated: dict[Callable[[], None], float] = {
            self._erase: 1 / self.rate,
            self._follow: 2.0,
            self._contribute: 5.0,
            self._whole_model: 45.0,
            self._short_lived_key: 30.0,
            self._read: 4.0,
            self._monitor: 120.0,
            self._operate: 300.0,
        }
        threads = [
            threading.Thread(target=self._repeat, args=item, daemon=True)
            for item in repeated.items()
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self._ended.set()
        for thread in threads:
            thread.join()
        until = time.monotonic() + PATIENCE_S
        while self.open and time.monotonic() < until:
            self._follow()
            time.sleep(0.5)
        self._opened.close()

    def _repeat(self, act: Callable[[], None], seconds: float) -> None:
        while not self._ended.is_set():
            begun = time.monotonic()
            try:
                act()
            except LetheError as error:
                self.wrong.append(f"{act.__name__.strip('_')}: {error!r}"[:300])
            self._ended.wait(max(0.0, begun + seconds - time.monotonic()))

    # -- what is done ------------------------------------------------------------------------

    def _erase(self) -> None:
        """Ask for the erasure of a record; now and then withdraw that."""
        if not self._records:
            self.counts["without_records"] += 1
            return
        record = self._records.popleft()
        request_id = self._submit(MODEL, record)
        if next(self._submitted) % WITHDRAWN:
            return
        try:
            self._again(lambda client: client.withdraw(request_id))
        except ProblemError as error:
            if error.status != 409:  # a worker was faster
                raise
            return
        self.told.append(("withdrawn", request_id))
        self.counts["withdrawn"] += 1
        self._records.append(record)

    def _submit(self, model: str, record: str) -> str:
        once = str(uuid.uuid4())
        receipt = self._again(
            lambda client: client.submit_erasure(model, records=[record], idempotency_key=once)
        )
        proof = receipt.receipt
        self.told.append(
            ("request", [receipt.id, proof.log_index, base64.b64encode(proof.leaf).decode()])
        )
        self.counts["accepted"] += 1
        self.open.append(receipt.id)
        return receipt.id

    def _follow(self) -> None:
        """Look after the oldest requests; download and verify the certificate of each."""
        for _ in range(min(len(self.open), 50)):
            request_id = self.open.popleft()
            self._look_after(request_id)

    def _look_after(self, request_id: str) -> None:
        status = self._again(lambda client: client.status(request_id))
        if not status.final:
            self.open.append(request_id)
        elif status.state == "certified":
            self._certified(request_id)
        elif status.state not in FINAL:
            self.wrong.append(f"a request ended as {status.state}")

    def _certified(self, request_id: str) -> None:
        file = self._again(lambda client: client.certificate(request_id))
        verdict = verify(file, keys=self.service.data / "keys")
        if verdict.result != "PASS":
            self.wrong.append(f"the certificate of {request_id} does not verify")
        self.counts["certified"] += 1

    def _contribute(self) -> None:
        """Fill the model up with new records, and use those that were learned."""
        for contribution, names in list(self._learning.items()):
            path = f"/v1/models/{MODEL}/contributions/{contribution}"
            found = self._get(path)
            if found is not None and found.json()["state"] == "learned":
                self._records.extend(names)
                del self._learning[contribution]
                self.counts["learned"] += 1
        if len(self._records) + PIECE * len(self._learning) > POOL - PIECE:
            return
        first = next(self._names)
        for _ in range(PIECE - 1):
            next(self._names)
        sent = pack(rows(first, PIECE, first))
        made = self._again(lambda client: client.contribute(MODEL, sent), signer="client")
        self._learning[made["id"]] = [f"r{first + number}" for number in range(PIECE)]

    def _whole_model(self) -> None:
        """Register a model, erase a record of it, and delete it."""
        ref = f"model-{next(self._models)}"
        self._register(ref, 40)
        request_id = self._submit(ref, "r0")
        while not self._again(lambda client: client.status(request_id)).final:
            if self._ended.wait(0.5):
                return
        self._again(lambda client: client.delete_model(ref))
        self.counts["deleted"] += 1

    def _register(self, ref: str, count: int) -> None:
        wanted, sent = manifest(ref=ref), pack(rows(count=count))
        self._again(lambda client: client.register_model(wanted, sent))
        self.told.append(("model", ref))
        self.counts["registered"] += 1
        until = time.monotonic() + PATIENCE_S
        while self._again(lambda client: client.model(ref))["state"] != "ready":
            if time.monotonic() > until:
                raise TimeoutError(f"{ref} was not fitted in {PATIENCE_S:.0f} s")
            time.sleep(0.2)

    def _short_lived_key(self) -> None:
        """Register a key and revoke it."""
        key = generate_key("ed25519")
        keyid = self._again(lambda client: client.register_key(key))
        self.told.append(("key", keyid))
        self._again(lambda client: client.revoke_key(keyid))
        self.told.append(("revoked", keyid))
        self.counts["keys"] += 1

    def _read(self) -> None:
        """Read what officers, auditors and monitoring read."""
        log = read_log_key(self.service.data / "keys" / "log.vkey")
        first = self._read_until
        found = self._again(lambda client: client.log_entries(log, first))
        self._read_until = found.end
        self._again(lambda client: client.artifact(MODEL, "current"))
        self._again(lambda client: list(itertools.islice(client.requests(page_size=20), 20)))
        for path in ("/readyz", "/metrics", "/v1/openapi.json"):
            self._get(path)
        self.counts["readings"] += 1

    def _monitor(self) -> None:
        """Follow the log from outside, as an independent monitor."""
        mirror, vkey = self.service.folder / "mirror", self.service.data / "keys" / "log.vkey"
        self._cli(
            "log",
            "mirror",
            f"{self.service.urls[LASTING]}/v1/log",
            str(mirror),
            "--vkey",
            str(vkey),
        )

    def _operate(self) -> None:
        """Destroy what is due, take a backup and examine the installation."""
        self._cli("retention", "run")
        folder = self.service.folder / "backup"
        self._cli("backup", "new", str(folder))
        shutil.rmtree(folder)
        self._cli("doctor")

    # -- how ---------------------------------------------------------------------------------

    def _cli(self, *command: str) -> None:
        done = self.service.cli(*command)
        self.counts[" ".join(command[:2])] += 1
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines()[-1:]
            self.wrong.append(f"lethe {' '.join(command[:2])}: {done.returncode} {said}")

    def _get(self, path: str) -> httpx2.Response | None:
        headers = {"authorization": f"Bearer {self.service.installation.token}"}
        for url in self.service.urls.values():
            with suppress(httpx2.HTTPError):
                return httpx2.get(url + path, headers=headers, timeout=30)
        self.counts["unanswered"] += 1
        return None

    def _again(self, call: Callable[[Client], T], *, signer: str = "requester") -> T:
        """Make a call until it is answered, at one API process after the other.

        Raises:
            ProblemError: It was refused.
            UnreachableError: There was no answer for PATIENCE_S.
        """
        until = time.monotonic() + PATIENCE_S
        while True:
            for client in self._of(signer):
                try:
                    return call(client)
                except ProblemError as error:
                    if error.status < 500 and error.status != 429:
                        raise
                    last: ClientError = error
                except UnreachableError as error:
                    last = error
                self.counts["unanswered"] += 1
            if time.monotonic() > until:
                raise last
            time.sleep(0.2)

    def _of(self, signer: str) -> list[Client]:
        """Return this thread's clients: of the process that is killed, then of the other."""
        made: dict[str, list[Client]] | None = getattr(self._clients, "made", None)
        if made is None:
            made = self._clients.made = {}
        if signer not in made:
            made[signer] = [
                self._opened.enter_context(self._client(signer, life))
                for life in (KILLED, LASTING)
            ]
        made[signer].reverse()  # both get half of all calls
        return list(made[signer])

    def _client(self, signer: str, life: str) -> Client:
        key: Any = self._client_key if signer == "client" else self._key
        return Client(
            self.service.urls[life],
            signer,
            key,
            token=self.service.installation.token,
            log=read_log_key(self.service.data / "keys" / "log.vkey"),
            retry=RETRY,
        )
