"""What auditors and witnesses do: follow logs, and keep what proves a fork."""

import shutil
from contextlib import suppress

from app.ledger.startup import load_ledger
from app.settings import Settings
from benchmarks.faults.clients import submitted
from benchmarks.faults.workload import StuckError, Told, tried
from lethe.log.fetch import CHECKPOINT, Fetch, LogError, MissingFileError, fetch_from
from lethe.log.follow import verify_log
from lethe.log.note import NoteVerifier
from lethe.log.watch import EVIDENCE, look
from lethe.witness import heads
from lethe.witness.home import create, load
from lethe.witness.witness import InconsistentError
from models.database.session import opened_engine
from tests.installation import Installation
from tests.lethe.witness.logs import Log

# Below the data folder: faults strike the auditor's files, too.
MIRROR, STATE, OLDER, WITNESS = "auditor", "auditor.state", "auditor.older", "forked"


def served(made: Installation) -> Fetch:
    """Return a reader of the log as the service shows it."""

    def fetch(path: str) -> bytes:
        answer = made.caller.http.get(f"/v1/log/{path}")
        if answer.status_code != 200:
            raise MissingFileError(path)
        return answer.content

    return fetch


def mirrored(made: Installation) -> None:
    """Have a mirror, and keep its checkpoint: a rewound log will show it again."""
    data = made.settings.data_dir
    assert look(served(made), made.services.ledger.verifier, data / MIRROR).report is not None
    shutil.copyfile(data / MIRROR / CHECKPOINT, data / OLDER)


def watch(made: Installation, told: Told) -> None:
    """Follow the log after a new entry; see it rewound, and keep the proof."""
    submitted(made, told, ("r1",))
    data, verifier = made.settings.data_dir, made.services.ledger.verifier
    fetch, older = served(made), (data / OLDER).read_bytes()

    def follow() -> int:
        found = look(fetch, verifier, data / MIRROR)
        if found.report is None:
            raise StuckError(found.detail)
        return verify_log(fetch, verifier, data / STATE).size

    told("mirrored", tried(follow))

    def rewound(path: str) -> bytes:
        return older if path == CHECKPOINT else fetch(path)

    def notice() -> str:
        found = look(rewound, verifier, data / MIRROR)
        if found.alarm != "rewind" or found.evidence is None:
            raise StuckError(f"a rewound log raises {found.alarm}: {found.detail}")
        return found.evidence.name

    told("evidence", tried(notice))


def unmirrored(settings: Settings) -> str | None:
    """Return why what a fault left is no mirror: whenever an auditor is killed, it is one."""
    with opened_engine(settings.resolved_database_url) as engine:
        verifier = load_ledger(settings, engine).verifier
    try:
        verify_log(fetch_from(settings.data_dir / MIRROR), verifier)
    except LogError as error:
        return f"the mirror: {error.detail}"
    return None


def why_unfollowed(settings: Settings, verifier: NoteVerifier, size: int) -> str | None:
    """Return what an auditor lacks that had followed the log up to `size`."""
    mirror = fetch_from(settings.data_dir / MIRROR)
    found = verify_log(mirror, verifier, settings.data_dir / STATE)
    return None if found.size >= size else f"the mirror has {found.size} entries of {size}"


def has_evidence(settings: Settings, name: str) -> bool:
    """Return whether the checkpoint that proves the alarm was kept."""
    data = settings.data_dir
    kept = data / MIRROR / EVIDENCE / name
    return kept.exists() and kept.read_bytes() == (data / OLDER).read_bytes()


# What a witness keeps of a fork at 4 entries: one of the same size proves itself.
KEPT = {4: "evidence", 6: "unproven"}


def see_a_fork(made: Installation, told: Told) -> None:
    """Set a witness up, and show it two histories that a log of its own signed."""
    data, log = made.settings.data_dir, Log(6)
    fork = Log(6, branch="other")

    def once() -> str:
        directory = data / f"{WITNESS}-{sum(1 for _ in data.glob(f'{WITNESS}-*'))}"
        create(directory, "witness.example", [log.signer.verifier])
        witness = load(directory)
        try:
            witness.add_checkpoint(log.request(0, 4))
            heads.MOST_UNPROVEN = 1  # the fork of size 5 gives way to that of size 6
            for size in (4, 5, 6):
                with suppress(InconsistentError):
                    witness.add_checkpoint(fork.request(4, size))
                    raise StuckError("a witness cosigned two histories of a log")
        finally:
            witness.heads.close()
        return directory.name

    told("forked", tried(once))


def why_forgotten(settings: Settings, name: str) -> str | None:
    """Return what a witness lost that had seen a fork: what it cosigned, or the proof."""
    directory, fork = settings.data_dir / name, Log(6, branch="other")
    witness = load(directory)
    head = witness.heads.read(fork.signer.name)
    witness.heads.close()
    if head is None or head.size != 4:
        return "the witness forgot what it cosigned"
    for size, folder in KEPT.items():
        kept = [one.read_bytes() for one in (directory / folder).glob("*")]
        if fork.request(4, size) not in kept:
            return "the proof of the fork was not kept"
    return None
