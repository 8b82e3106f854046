"""A clean virtual environment with `pip install .`: what an auditor and a requester have."""

from pathlib import Path

from tests.packaging.dockerfile import Sandbox, Stage

INSTALL = Stage(
    base="python",
    name="base-install",
    steps=[
        ("WORKDIR", "/src"),
        ("RUN", "python -m venv --without-pip /opt/lethe"),
        ("COPY", "pyproject.toml constraints.txt README.md LICENSE ./"),
        ("COPY", "lethe lethe"),
        ("COPY", "app app"),
        ("COPY", "migrations migrations"),
        ("COPY", "models models"),
        ("COPY", "workers workers"),
        (
            "RUN",
            "python -m pip --python /opt/lethe/bin/python install -c constraints.txt .",
        ),
    ],
)
PROGRAMS = "/opt/lethe/bin"


def base_install(directory: Path) -> Sandbox:
    """Install it below a directory."""
    sandbox = Sandbox(directory)
    sandbox.build(INSTALL)
    return sandbox
