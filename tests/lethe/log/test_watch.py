"""A monitor sees each way in which a log stops being what it was, and keeps what was signed."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from lethe.log.fetch import LogUnreachableError, MissingFileError
from lethe.log.follow import verify_log
from lethe.log.watch import EVIDENCE, watch
from tests.lethe.log import oracle
from tests.lethe.log.logs import STRANGER, VERIFIER, fetch_files, log_files

BEGUN = log_files(oracle.entries(300))
GROWN = log_files(oracle.entries(600))
FORKED = log_files((b"forked", *oracle.entries(600)[1:]))
SAME_SIZE = log_files((b"forked", *oracle.entries(300)[1:]))


class Served:
    """A log that serves what it is told to, and notes what was asked for."""

    def __init__(self) -> None:
        self.files, self.asked = dict(BEGUN), set[str]()

    def __call__(self, path: str) -> bytes:
        self.asked.add(path)
        return fetch_files(self.files)(path)


@pytest.mark.parametrize(
    ("files", "alarm", "signed"),
    [
        (FORKED, "fork", True),
        (SAME_SIZE, "fork", True),
        (BEGUN | {"checkpoint": SAME_SIZE["checkpoint"]}, "fork", True),
        (log_files(oracle.entries(299)), "rewind", True),
        (log_files(()), "rewind", True),
        (GROWN | {"tile/0/001": bytes(8192)}, "changed", True),
        ({k: v for k, v in GROWN.items() if k != "tile/entries/001"}, "missing", True),
        (log_files(oracle.entries(600), STRANGER), "changed", False),
    ],
)
def test_each_way_has_its_alarm(
    files: dict[str, bytes], alarm: str, signed: bool, tmp_path: Path
) -> None:
    served = Served()
    turns = watch(served, VERIFIER, tmp_path, every=1, full_every=2)
    assert next(turns)[0].report is not None
    served.files = files
    found, _ = next(turns)
    assert (found.alarm, found.report) == (alarm, None)
    assert found.detail
    if signed:
        assert found.evidence is not None
        assert found.evidence.parent == tmp_path / EVIDENCE
        assert found.evidence.read_bytes() == files["checkpoint"]
    else:
        assert found.evidence is None
    # The mirror is what it was: with the evidence it is the proof.
    mirror = {k: (tmp_path / k).read_bytes() for k in BEGUN}
    assert mirror == BEGUN
    assert verify_log(fetch_files(mirror), VERIFIER).size == 300


def begins_alike(data: bytes) -> SimpleNamespace:
    """SHA-256 of texts that somebody searched for: 2**32 of them have two that begin alike."""
    digest = "0" * 16 + hashlib.sha256(data).hexdigest()[16:]
    return SimpleNamespace(hexdigest=lambda: digest)


def test_a_log_does_not_replace_the_proof_of_its_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served()
    assert next(watch(served, VERIFIER, tmp_path, every=1, full_every=2))[0].report is not None
    monkeypatch.setattr("lethe.log.watch.hashlib", SimpleNamespace(sha256=begins_alike))
    rewound = log_files(oracle.entries(299))  # an old copy, which proves nothing
    for files in (FORKED, rewound):
        served.files = files
        assert next(watch(served, VERIFIER, tmp_path, every=1, full_every=2))[0].evidence
    kept = {one.read_bytes() for one in (tmp_path / EVIDENCE).iterdir()}
    assert kept == {FORKED["checkpoint"], rewound["checkpoint"]}


@pytest.mark.parametrize(
    ("files", "alarm"),
    [
        (BEGUN | {"tile/entries/000": GROWN["tile/entries/001"]}, "changed"),
        ({k: v for k, v in BEGUN.items() if k != "tile/0/000"}, "missing"),
    ],
)
def test_what_is_old_is_read_again_now_and_then(
    files: dict[str, bytes], alarm: str, tmp_path: Path
) -> None:
    served = Served()
    turns = watch(served, VERIFIER, tmp_path, every=1, full_every=3)
    assert next(turns)[0].report is not None
    served.files, served.asked = files, set()
    assert [next(turns)[0].alarm for _ in range(2)] == [None, None]  # nothing is new
    assert served.asked == {"checkpoint"}
    assert next(turns)[0].alarm == alarm


def test_a_log_that_grows_has_no_alarm(tmp_path: Path) -> None:
    served = Served()
    turns = watch(served, VERIFIER, tmp_path, every=1, full_every=2)
    sizes = []
    for files in (BEGUN, GROWN, GROWN, log_files(oracle.entries(601))):
        served.files = files
        report = next(turns)[0].report
        assert report is not None
        sizes.append(report.size)
    assert sizes == [300, 600, 600, 601]
    assert not (tmp_path / EVIDENCE).exists()


def test_an_unreachable_log_is_no_verdict(tmp_path: Path) -> None:
    def fetch(path: str) -> bytes:
        raise LogUnreachableError("no route")

    def empty(path: str) -> bytes:
        raise MissingFileError(f"{path} is missing", path=path)

    for one in (fetch, empty):
        found, _ = next(watch(one, VERIFIER, tmp_path, every=1, full_every=2))
        assert (found.alarm, found.evidence) == ("unreachable", None)
