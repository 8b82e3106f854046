"""The commands of the documentation that no test can run, each with the reason.

Keep it short: a command that is not here is run, from an empty directory, by test_pages.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.docs.tried.statements import Block


@dataclass(frozen=True)
class LeftOut:
    """Statements of pages, by patterns as file names have them. whole: of a whole block."""

    page: str
    pattern: str
    reason: str
    whole: bool = False

    def has(self, page: str, block: Block, statement: str) -> bool:
        """Say whether a statement of a page is left out."""
        text = "\n".join(block.statements) if self.whole else statement
        return fnmatchcase(page, self.page) and fnmatchcase(text, self.pattern)


LEFT_OUT = [
    LeftOut(
        "*", "make *", "installs, tests, demonstrations and measurements of minutes to hours"
    ),
    LeftOut("*", "pip install *", "tests/packaging installs each extra"),
    LeftOut(
        "*", "python -m benchmarks.*", "measurements of minutes to hours: tests/benchmarks"
    ),
    LeftOut("*", "*lethe demo*", "demonstrations of minutes: tests/e2e/test_demo*.py"),
    LeftOut(
        "docs/forests.md",
        "*",
        "compiles for minutes on a busy machine: tests/e2e/test_families.py",
    ),
    LeftOut("docs/flower.md", "*", "Flower, in an environment of its own: make flower-check"),
    LeftOut("docs/development.md", "* dist*", "a release"),
    LeftOut("docs/development.md", "git *", "a release"),
    LeftOut(
        "docs/register-networks.md",
        "*--ref [dls]*",
        "three more networks: tests/workers/cli/models/test_register_network_*.py",
    ),
    LeftOut("docs/networks-and-silos.md", "LETHE_GPU_QUEUE=*", "a GPU: make gpu-check"),
    LeftOut(
        "docs/method-audits.md",
        "lethe audit *",
        "minutes of trainings: tests/workers/jobs/method_audits/test_audits.py",
    ),
    LeftOut("docs/install.md", "docker *", "containers: tests/packaging/test_compose.py"),
    LeftOut("docs/install.md", "kubectl *", "a cluster: tests/packaging/test_kubernetes.py"),
    LeftOut("docs/install.md", "*lethe_service*", "PostgreSQL: tests/migrations", whole=True),
    LeftOut(
        "docs/backup.md", "*/lethe-files *", "PostgreSQL: tests/app/cli/test_follow_files.py"
    ),
    LeftOut("docs/keys.md", "*pkcs11:*", "an HSM: tests/app/hsm/tokens", whole=True),
    LeftOut(
        "docs/keys.md",
        "*env:LETHE_*",
        "a new installation: tests/app/keys/test_environment_keys.py",
        whole=True,
    ),
    LeftOut(
        "docs/keys.md",
        "*log-mldsa*",
        "needs a second key and restarted processes: tests/app/keys/test_ml_dsa_key.py",
        whole=True,
    ),
    LeftOut(
        "docs/models.md",
        "lethe model mend *",
        "a quarantined model: tests/workers/cli/models/test_model_mend.py",
    ),
    LeftOut(
        "docs/download.md",
        "lethe model push *",
        "MLflow: tests/workers/cli/models/test_model_push.py",
    ),
    LeftOut(
        "docs/auditor-guide.md",
        "*SCORES https:*",
        "scores of a network: tests/workers/cli/test_recheck.py",
    ),
    LeftOut(
        "README.md",
        "*redis://redis.example.org*",
        "PostgreSQL and Redis: tests/e2e, tests/packaging/test_compose.py",
        whole=True,
    ),
]


def is_left_out(
    page: str, block: Block, statement: str, entries: Sequence[LeftOut] = LEFT_OUT
) -> bool:
    """Say whether no test runs this statement of a page."""
    return any(one.has(page, block, statement) for one in entries)


def spare(entries: Iterable[LeftOut], pages: Mapping[str, Sequence[Block]]) -> list[LeftOut]:
    """Return the entries that no statement of the documentation needs any more."""
    return [
        entry
        for entry in entries
        if not any(
            entry.has(page, block, statement)
            for page, blocks in pages.items()
            for block in blocks
            for statement in block.statements
        )
    ]
