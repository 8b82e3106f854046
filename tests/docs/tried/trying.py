"""Enter the commands of a page, one after the other, and compare what they print."""

from collections.abc import Sequence
from contextlib import nullcontext

from tests.docs.tried.desk import Desk, Page, named
from tests.docs.tried.left_out import is_left_out
from tests.docs.tried.shown import is_shown
from tests.docs.tried.statements import Block


def try_blocks(name: str, blocks: Sequence[Block], page: Page, desk: Desk) -> None:
    """Raise AssertionError at the first command that does not end or print as the page says."""
    used: set[str] = set()
    page.prepare(desk)
    for block in blocks:
        printed = [
            _enter(f"{name}:{block.line}", statement, desk, page, used)
            for statement in block.statements
            if not is_left_out(name, block, statement)
        ]
        if block.shown is not None and len(printed) == len(block.statements):
            assert is_shown(block.shown, [page.as_shown(one, desk, used) for one in printed]), (
                f"{name}:{block.line} shows\n{block.shown}\nbut its commands print\n"
                + "\n".join(printed)
            )
    assert desk.shell.still_serves(), f"{name}: a server ended"
    tables = (page.stands, page.before, page.typed, page.exits, page.serves, page.extras)
    spare = {text for table in tables for text in table} - used
    assert not spare, f"{name} has none of {spare}"


def _enter(place: str, statement: str, desk: Desk, page: Page, used: set[str]) -> str:
    """Enter one statement; returns what it printed."""
    if (hook := named(statement, page.before, used)) is not None:
        page.before[hook](desk)
    entered = page.entered(statement, desk, used)
    if (server := named(statement, page.serves, used)) is not None:
        printed = desk.shell.start(entered, page.serves[server])
    else:
        question = named(statement, page.typed, used)
        typed = "" if question is None else page.typed[question]
        with_extra = named(statement, dict.fromkeys(page.extras), used) is not None
        with desk.extras() if with_extra else nullcontext():
            status, printed = desk.shell.run(entered, typed)
        printed = printed.replace("[y/N]: ", f"[y/N]: {typed}")  # as a terminal echoes it
        told = named(statement, page.exits, used)
        wanted = 0 if told is None else page.exits[told][: desk.entered[told] + 1][-1]
        desk.entered[told or ""] += 1
        assert status == wanted, (
            f"{place}: {entered}\nends with {status}, not {wanted}:\n{printed}"
        )
    desk.printed.append(printed)
    return printed
