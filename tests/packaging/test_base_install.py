"""The base install: what an auditor needs, and nothing that serves or computes."""

from pathlib import Path

import pytest

from lethe.canonical import format_base64
from tests.lethe.certificates.build import CERTIFICATE_ID, LocalLog
from tests.lethe.certificates.test_trust_root import FIRST, SECOND, Published
from tests.lethe.certificates.test_verify import FIRST as ONE
from tests.lethe.certificates.test_verify import SECOND as OTHER
from tests.lethe.certificates.test_verify import THIRD as AWAY
from tests.lethe.log.logs import log_files
from tests.packaging.base_install import PROGRAMS, base_install
from tests.packaging.dockerfile import Sandbox

pytestmark = pytest.mark.timeout(600)

PATH = {"PATH": f"{PROGRAMS}:$PATH"}
SERVES_OR_COMPUTES = {
    "alembic",
    "celery",
    "fastapi",
    "jinja2",
    "numba",
    "numpy",
    "psycopg",
    "pydantic",
    "pydantic-settings",
    "redis",
    "safetensors",
    "scikit-learn",
    "scipy",
    "sqlalchemy",
    "sqlmodel",
    "starlette",
    "torch",
    "uvicorn",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A clean virtual environment with `pip install .`."""
    return base_install(tmp_path_factory.mktemp("base"))


def test_it_pulls_no_web_framework_database_or_numerics(installed: Sandbox) -> None:
    found = {path.name for path in _site_packages(installed).glob("*.dist-info")}
    names = {name.partition("-")[0].lower().replace("_", "-") for name in found}
    assert {"lethe-ledger", "click", "cryptography"} <= names
    assert not names & SERVES_OR_COMPUTES


@pytest.mark.parametrize(
    "command",
    [
        ["certificate", "verify"],
        ["certificate", "show"],
        ["certificate", "recheck"],
        ["log", "verify"],
        ["log", "mirror"],
        ["key", "new"],
        ["request", "submit"],
    ],
    ids=" ".join,
)
def test_an_auditor_and_a_requester_can_work(installed: Sandbox, command: list[str]) -> None:
    done = installed.run(["lethe", *command, "--help"], PATH, check=True)
    assert f"Usage: lethe {' '.join(command)}" in done.stdout


class Witnessed(LocalLog):
    """A log whose checkpoints two witnesses cosign."""

    def checkpoint(self) -> str:
        note = super().checkpoint()
        text = note.partition("\n\n")[0] + "\n"
        return note + "".join(one.line(text, 1_790_000_000) for one in (ONE, OTHER))


QUORUM = f"""witness one {ONE.verifier.vkey}
witness other {OTHER.verifier.vkey}
witness away {AWAY.verifier.vkey}
group two 2 one other away
quorum two
"""


@pytest.fixture(scope="module")
def case(installed: Sandbox) -> str:
    """What an auditor has: a certificate, a trust root, a policy of witnesses, and a log."""
    office = Published(log=Witnessed())
    office.say(FIRST, SECOND)
    certified = office.certify()
    place = installed.path("/case")
    certified.write(place)
    (place / "trust-root.json").write_bytes(office.root())
    (place / "witness.policy").write_text(QUORUM)
    (place / "all.policy").write_text(QUORUM.replace("group two 2", "group two all"))
    for name, data in log_files(office.log.leaves, office.log.signer).items():
        (place / "log" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "log" / name).write_bytes(data)
    return str(place)


def test_an_auditor_goes_from_a_certificate_to_the_whole_log(
    installed: Sandbox, case: str
) -> None:
    file = f"{case}/certificates/{CERTIFICATE_ID}.sigstore.json"
    root = ["--trust-root", f"{case}/trust-root.json"]
    known = ["--log-key", f"{case}/keys/log.vkey"]
    files = [
        *("--evidence", f"{case}/evidence/{CERTIFICATE_ID}.json"),
        *("--model", f"{case}/models/after.safetensors"),
    ]

    def lethe(*words: str) -> tuple[int, str]:
        done = installed.run(["lethe", *words], PATH)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout

    verify = ("certificate", "verify", file, *root, *known, *files)
    code, said = lethe(*verify, "--policy", f"{case}/witness.policy")
    assert (code, "\nAUTHENTIC  " in said) == (0, True), said
    assert "2 of 3 witnesses of the policy signed: its quorum is met" in said
    assert " - " not in said  # every step was carried out
    code, said = lethe(*verify, "--policy", f"{case}/all.policy")
    assert (code, "its quorum is not met" in said) == (1, True)
    assert lethe("certificate", "show", file)[0] == 0
    head = (Path(case) / "log" / "checkpoint").read_text().splitlines()[2]
    for words in (("verify", f"{case}/log"), ("mirror", f"{case}/log", f"{case}/mirror")):
        code, said = lethe("log", *words, *root)
        assert (code, f"root {head}" in said) == (0, True)
    changed = Path(case) / "log" / "checkpoint"
    text = changed.read_text()
    changed.write_text(text.replace(head, format_base64(bytes(32))))
    assert lethe("log", "verify", f"{case}/log", *root)[0] == 1
    changed.write_text(text)


@pytest.mark.parametrize(
    ("command", "extra"), [("serve", "server"), ("worker", "worker"), ("demo", "demo")]
)
def test_what_is_missing_is_named_with_its_extra(
    installed: Sandbox, command: str, extra: str
) -> None:
    done = installed.run(["lethe", command], PATH)
    assert done.returncode == 2
    assert f"pip install -c constraints.txt '.[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_estimators_name_their_extra(installed: Sandbox) -> None:
    done = installed.run(["python", "-c", "import lethe.estimators"], PATH)
    assert done.returncode == 1
    assert "lethe.estimators needs the package numba, which is not installed" in done.stderr
    assert "pip install -c constraints.txt '.[estimators]'" in done.stderr


def _site_packages(sandbox: Sandbox) -> Path:
    (found,) = sandbox.path("/opt/lethe/lib").glob("python*/site-packages")
    return found
