"""Every command of the documentation runs, page by page, from an empty directory.

A page's shell blocks are entered in their order, against an installation of processes. Each
command must end with 0, or with the status that the page says, and print what the page shows.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import NAMES, read
from tests.docs.tried.desk import TOKENS, Desk
from tests.docs.tried.left_out import LEFT_OUT, is_left_out, spare
from tests.docs.tried.pages import PAGES
from tests.docs.tried.quick_lethe import quick_lethe
from tests.docs.tried.shell import Shell
from tests.docs.tried.statements import blocks_of
from tests.docs.tried.trying import try_blocks
from tests.e2e.conftest import FILES
from tests.e2e.forked import fork_server
from tests.e2e.harness import Processes, running, stopped
from tests.packaging.base_install import PROGRAMS, base_install
from tests.servers import free_port

BLOCKS = {name: found for name in NAMES if (found := blocks_of(read(name)))}
TRIED = [
    name
    for name, blocks in BLOCKS.items()
    if not all(is_left_out(name, block, one) for block in blocks for one in block.statements)
]
# What takes long waits for fits, on cores that are busy with other tests.
pytestmark = pytest.mark.timeout(1200)
Begun = tuple[Processes, dict[str, str], dict[str, str]]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begun]:
    """An installation with an empty log and the tokens, which each page begins with a copy of.

    And the environment in which a page's commands are entered.
    """
    folder = tmp_path_factory.mktemp("begun")
    with (
        fork_server() as forks,
        running(folder / "lethe", "", FILES, forks) as made,
        quick_lethe(forks, folder / "bin") as quick,
    ):
        tokens = {
            name: made.cli("token", "new", "--scope", scope, "--name", name).stdout.split()[-1]
            for name, scope in TOKENS.items()
        }
        yield made, tokens, quick


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the base install, in an environment of their own."""
    return base_install(tmp_path_factory.mktemp("base")).path(PROGRAMS)


@pytest.mark.parametrize("name", TRIED)
def test_the_commands_of_a_page_run_and_print_what_it_shows(
    name: str, begun: Begun, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (template, tokens, quick), page = begun, PAGES[name]
    directory, home = tmp_path / "page", tmp_path / "home"
    directory.mkdir()
    home.mkdir()
    with stopped(template.copy(tmp_path / "lethe", "", FILES)) as service:
        service.more = dict(page.settings)
        page.install(service)
        if page.runs:
            service.start_api()
            service.start_worker()
        environment = page.environment(home, service, tokens) | quick
        if page.base:
            del environment["DIRECT"]  # servers are of the base install too
            others = os.environ["PATH"].replace(f"{Path(sys.executable).parent}:", "")
            base = request.getfixturevalue("base")
            environment |= {"PATH": f"{base}:{others}", "EXTRAS": quick["PATH"]}
        with Shell(directory, tmp_path / "entered", environment) as shell:
            desk = Desk(directory, service, shell, free_port(), tokens)
            try_blocks(name, BLOCKS[name], page, desk)


def test_what_is_left_out_is_in_the_documentation() -> None:
    assert spare(LEFT_OUT, BLOCKS) == []


def test_each_page_that_is_prepared_has_commands() -> None:
    assert PAGES.keys() == set(TRIED)
