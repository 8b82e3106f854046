"""The commands of docs/protocols.md, run against a service on a socket."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from lethe.signing.keys import private_pem
from tests.app.protocols.conftest import BUSINESS
from tests.app.protocols.test_drp import Agent
from tests.docs.markdown import blocks
from tests.installation import Installation, make_token
from tests.workers.jobs.desk.test_people import ANN


@contextmanager
def listening(installation: Installation) -> Iterator[str]:
    """Serve an installation's application on loopback."""
    app = installation.caller.http.app
    # Its own logging would stay configured for the tests after these.
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def run(block: str, directory: Path, **names: str) -> str:
    """Run a block of the page as a reader would, in an empty folder."""
    done = subprocess.run(
        ["sh", "-euc", block],
        cwd=directory,
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def block(word: str) -> str:
    """Return the one block of the page that calls this path."""
    (found,) = [one for one in blocks("docs/protocols.md", "sh") if f"$URL/{word}" in one]
    return found


def test_opendsr_by_curl_and_openssl(serving: Installation, tmp_path: Path) -> None:
    commands = block("dsr").replace("johndoe@example.com", ANN)
    token = make_token(serving.services, "agent")
    with listening(serving) as url:
        said = run(commands, tmp_path, URL=url, TOKEN=token)
    assert "Verified OK" in said
    answers = [
        json.loads(one)
        for one in said.replace("Verified OK\n", "").replace("}{", "}\n{").splitlines()
    ]
    assert [one.get("request_status") for one in answers] == [None, None, "pending", None]
    assert answers[-1]["subject_request_id"] == answers[1]["subject_request_id"]


def test_the_data_rights_protocol_by_curl_and_openssl(
    serving: Installation, tmp_path: Path
) -> None:
    agent = Agent(serving)
    agent.register()
    (tmp_path / "agent.key").write_text(private_pem(agent.key))
    commands = block("drp").replace("johndoe@example.com", ANN)
    with listening(serving) as url:
        said = run(commands, tmp_path, URL=url, BUSINESS=BUSINESS)
    answers = [json.loads(one) for one in said.replace("}{", "}\n{").splitlines()]
    assert [one["status"] for one in answers] == ["in_progress", "in_progress", "revoked"]
    assert {one["agent_request_id"] for one in answers} == {"foo"}
