"""A campaign: beginnings, the cases of a schedule, two at once, and the report."""

import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from benchmarks.faults.case import Beginning, Break, Outcome, calls_of, run_case
from benchmarks.faults.controllers import certify
from benchmarks.faults.schedule import (
    BOTH_WAYS,
    DURABLE,
    Part,
    differing,
    every,
    places,
    schedule,
)
from benchmarks.faults.workloads import WORKLOADS
from benchmarks.service.servers import created_database
from lethe.signing.keys import private_pem
from migrations.runner import upgrade
from models.database.session import make_engine
from tests.beginnings import Originals
from tests.servers import in_memory, postgres_server
from tests.statements import share_statements

ORIGIN = "faults.test/lethe"
AT_ONCE = 2
ROOM = 1 << 30  # bytes in memory, where cases are copied to: no case cuts the power
KINDS = ("lost", "duplicated", "stuck", "fsck_failures")


@dataclass
class Campaign:
    """What was injected and found on each kind of database."""

    outcomes: list[Outcome] = field(default_factory=list)
    lines: set[tuple[str, int]] = field(default_factory=set)
    sites: set[str] = field(default_factory=set)
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Take one outcome."""
        self.outcomes.append(outcome)

    def report(self) -> dict[str, Any]:
        """Return the figures: `injected`, each of KINDS, and what they are made of."""
        struck = [one for one in self.outcomes if one.struck]
        bad = [one.as_dict() for one in self.outcomes if one.bad]
        sums = {
            kind: sum(len(one.judgement.as_dict()[kind]) for one in self.outcomes)
            for kind in KINDS
        }
        faults = [one.case.fault for one in struck if one.case.fault is not None]
        reached, missed = self._places()
        return {
            "injected": len(struck),
            **sums,
            "not_reached_again": len(self.outcomes) - len(struck),
            "by_mode": dict(sorted(Counter(one.case.mode for one in struck).items())),
            "by_call": dict(sorted(Counter(f.site.split()[0] for f in faults).items())),
            "by_workload": dict(sorted(Counter(one.case.workload for one in struck).items())),
            "by_database": dict(sorted(Counter(one.database for one in struck).items())),
            "sites": len({f.site for f in faults}),
            "places_reached": reached,
            "places_not_reached": missed,
            "calls_not_struck": self._not_struck(),
            "seconds": round(self.seconds),
            "findings": bad,
        }

    def _not_struck(self) -> list[str]:
        """Return what became durable and neither failed nor failed but persisted here."""
        wanted = {
            (mode, site)
            for site in self.sites
            for mode in BOTH_WAYS
            if site.split()[0] in DURABLE
        }
        faults = (one.case.fault for one in self.outcomes if one.struck)
        struck = {(fault.mode, fault.site) for fault in faults if fault is not None}
        return [" ".join(one) for one in sorted(wanted - struck)]

    def _places(self) -> tuple[int, list[str]]:
        known = places()
        missed = [
            f"{file}:{first} {name}"
            for file, first, last, name in known
            if not any((file, line) in self.lines for line in range(first, last + 1))
        ]
        return len(known) - len(missed), missed


def run(
    campaign: Campaign,
    beginning: Beginning,
    most: int,
    place: Path,
    *,
    part: Part = (1, 1),
    names: tuple[str, ...] = tuple(WORKLOADS),
    broken: Break | None = None,
    said: Any = print,
) -> None:
    """Inject faults on one kind of database until `most` have struck."""
    begun = time.monotonic()
    calls: dict[str, dict[str, int]] = {}
    kind = make_url(beginning.database_url).get_backend_name()
    for name in names:
        if WORKLOADS[name].only not in (None, kind):
            continue
        sites, lines = calls_of(WORKLOADS[name], beginning, place)
        campaign.lines |= set(lines)
        campaign.sites |= sites.keys()
        if kind != "sqlite":
            sites = differing(sites)
        if sites:
            calls[name] = sites
    cases = every(schedule(calls), part)
    struck = 0
    assert threading.active_count() == 1, "a fork would copy what other threads hold"
    with ProcessPoolExecutor(AT_ONCE, mp_context=get_context("fork")) as pool:
        while struck < most and (some := list(islice(cases, min(50, most - struck)))):
            waiting = [pool.submit(run_case, case, beginning, place, broken) for case in some]
            for one in as_completed(waiting):
                outcome = one.result()
                campaign.add(outcome)
                struck += outcome.struck
                if outcome.bad:
                    said(f"found: {outcome.as_dict()}")
            said(f"{struck} of {most} faults, {time.monotonic() - begun:.0f} s")
    campaign.seconds += time.monotonic() - begun


@contextmanager
def beginnings(*kinds: str) -> Iterator[tuple[list[Beginning], Path]]:
    """Make a fitted installation on each kind of database, and a folder for their copies."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    share_statements()
    within = in_memory(ROOM)
    folder = Path(tempfile.mkdtemp(prefix="lethe-faults-", dir=within))
    try:
        if "postgresql" not in kinds:
            yield [_begun("sqlite", folder, "")], folder
            return
        with postgres_server() as server:
            yield [_begun(kind, folder, server) for kind in kinds], folder
    finally:
        shutil.rmtree(folder)


def _begun(kind: str, folder: Path, server: str) -> Beginning:
    def fresh(name: str) -> str:
        if kind == "sqlite":
            url = f"sqlite:///{folder / name}.db"
        else:
            url = created_database(server, f"beginning_{name}")
        engine = make_engine(url)
        upgrade(engine)
        engine.dispose()
        return url

    directory = folder / kind
    directory.mkdir()
    original = Originals(ORIGIN, directory, fresh).of("fitted")
    certify(original.data_dir / "keys")
    url = make_url(original.database_url).render_as_string(hide_password=False)
    return Beginning(url, original.data_dir, private_pem(original.made), ORIGIN)
