"""A load of prepared HTTP/1.1 requests over keep-alive connections.

The client spends as little as it can: requests are bytes made beforehand, and of an answer only
its status and length are read. What it spends, it spends on every contender alike.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """Latencies in seconds, statuses, and the seconds from the first to the last."""

    latencies: tuple[float, ...]
    statuses: tuple[int, ...]
    seconds: float

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """Return the latency in seconds that `share` of the answers did not exceed."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def drive(
    ports: Sequence[int], requests: Sequence[bytes], connections: int, rate: float = 0.0
) -> Measured:
    """Send all requests, on `connections` connections dealt over the ports; return what came.

    rate: at most so many a second, 0 for as many as are answered.

    Raises:
        RuntimeError: An answer is no 2xx; the message has its status and body.
    """
    return asyncio.run(_drive(ports, requests, connections, rate))


async def _drive(
    ports: Sequence[int], requests: Sequence[bytes], connections: int, rate: float
) -> Measured:
    latencies: list[float] = []
    statuses: list[int] = []
    pending = iter(requests)
    begun = time.perf_counter()
    due = _due(begun, rate)
    await asyncio.gather(
        *(
            _connection(ports[number % len(ports)], pending, due, latencies, statuses)
            for number in range(connections)
        )
    )
    return Measured(tuple(latencies), tuple(statuses), time.perf_counter() - begun)


def _due(begun: float, rate: float) -> Iterator[float]:
    number = 0
    while True:
        yield begun + number / rate if rate else begun
        number += 1


async def _connection(
    port: int,
    pending: Iterator[bytes],
    due: Iterator[float],
    latencies: list[float],
    statuses: list[int],
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for request in pending:
            when = next(due)
            await asyncio.sleep(max(0.0, when - time.perf_counter()))
            start = time.perf_counter()
            writer.write(request)
            status, body = await _answer(reader)
            latencies.append(time.perf_counter() - start)
            statuses.append(status)
            if not 200 <= status < 300:
                raise RuntimeError(f"{status}: {body.decode(errors='replace')}")
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    body = await reader.readexactly(int(fields.get("content-length", "0")))
    return int(lines[0].split(" ", 2)[1]), body
