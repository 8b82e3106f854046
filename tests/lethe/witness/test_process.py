"""`lethe witness serve` as a process that is killed at any moment.

Whatever was answered before and after must be one history: never two roots of one size, and
never a smaller tree after a larger one.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2

from lethe.log.note import parse_vkey, read_note, split_note
from lethe.witness import home
from tests.lethe.certificates.build import log_signer
from tests.lethe.witness.logs import Log, witness_in

ROUNDS = 12
LOG, FORK = Log(4000), Log(4000, "other ")


def start(place: Path) -> tuple["subprocess.Popen[str]", str]:
    command = [
        sys.executable,
        "-m",
        "lethe.cli.main",
        "witness",
        "serve",
        str(place),
        "--port",
        "0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("witness at http://127.0.0.1:"), line
    return process, line.split()[-1].rstrip("/")


def test_a_witness_reads_its_files_as_it_wrote_them_in_any_locale(tmp_path: Path) -> None:
    log = Log(1, signer=log_signer("z\u00fcrich.example/log"))
    witness_in(tmp_path / "w", log, name="witness.z\u00fcrich.example/w")
    code = (
        "import sys; from pathlib import Path; from lethe.witness.home import load;"
        "load(Path(sys.argv[1])).heads.close()"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "w")],
        env={**os.environ, **ascii_only},
        check=True,
        timeout=60,
    )


def test_a_killed_witness_never_signs_two_heads_of_one_size(tmp_path: Path) -> None:
    place = tmp_path / "w"
    witness_in(place, LOG)
    keys = [parse_vkey((place / f"{stem}.vkey").read_text()[:-1]) for stem in home.KEYS]
    draw = random.Random(0)
    answered: list[tuple[int, bytes]] = []  # in their order
    size = 0

    def feed(url: str) -> None:
        """Send growth of both branches until the witness is gone."""
        nonlocal size
        try:
            with httpx2.Client(timeout=10) as client:
                while True:
                    for log in (LOG, FORK) if draw.random() < 0.5 else (FORK, LOG):
                        new = min(size + draw.randint(0, 2), 3999)
                        answer = client.post(
                            f"{url}/add-checkpoint", content=log.request(size, new)
                        )
                        if answer.status_code == 409:
                            size = int(answer.text)
                        elif answer.status_code == 200:
                            text, _ = split_note(log.note(new))
                            read_note(f"{text}\n{answer.text}", keys)
                            answered.append((new, log.head(new).root))
                            size = new
        except httpx2.HTTPError:
            return

    for _ in range(ROUNDS):
        process, url = start(place)
        thread = threading.Thread(target=feed, args=(url,))
        thread.start()
        before = len(answered)
        while len(answered) < before + 2 and thread.is_alive():
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        thread.join()

    assert len(answered) >= 2 * ROUNDS
    roots: dict[int, bytes] = {}
    for at, root in answered:
        assert roots.setdefault(at, root) == root
    assert [at for at, _ in answered] == sorted(at for at, _ in answered)
    branch = LOG if LOG.head(answered[-1][0]).root == answered[-1][1] else FORK
    assert all(branch.head(at).root == root for at, root in answered)

    process, _ = start(place)
    process.terminate()
    assert process.wait(10) == 0
    assert process.stdout is not None
    process.stdout.close()
