"""--json everywhere: programs read what people read."""

from collections.abc import Iterator

import click
import pytest

from lethe.cli.main import lethe

# What has no --json, and why.
ALWAYS_JSON = (
    "audit show", "certificate schema", "model schema", "policy default", "policy schema",
    "round abort", "round open", "round roster", "round status", "service-key trust-root",
)  # fmt: skip
FILES = (
    "audit get", "case summary", "certificate cyclonedx", "certificate get",
    "certificate page", "certificate receipt", "certificate report", "client contribute",
    "client release", "demo", "demo-federated", "drop process", "features extract", "key new",
    "model download", "model push", "model register forest", "model register network",
    "model register recipe", "model register ridge", "model register script",
    "model register sums", "model register vectors",
    "report period",
)  # fmt: skip
ONE_VALUE = (
    "certificate catalogue", "completion", "features digest", "intake code", "log ml-dsa",
    "person import", "person remove-held-out", "policy check", "service-key revoke issuer",
    "service-key revoke log", "service-key revoke log-mldsa", "service-key rotate issuer",
    "service-key rotate log", "service-key rotate log-mldsa", "service-key rotate master",
    "service-key revoke master", "service-key rotate silo", "service-key revoke silo",
)  # fmt: skip
INSTALLATION = (
    "backup follow", "backup new", "backup rehearse", "log init", "log recover", "login",
    "logout", "migrate", "restore", "round join", "serve", "witness follow", "witness init",
    "witness serve", "worker",
)  # fmt: skip


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, bool]]:
    """Yield each command, and whether it has --json."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, name
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))
        else:
            has = any("--json" in parameter.opts for parameter in found.params)
            yield " ".join((*path, name)), has


@pytest.mark.parametrize("without", [ALWAYS_JSON, FILES, ONE_VALUE, INSTALLATION])
def test_each_exception_is_a_command_without_it(without: tuple[str, ...]) -> None:
    known = dict(commands(lethe))
    assert [name for name in without if known.get(name) is not False] == []


def test_every_other_command_has_it() -> None:
    known = {*ALWAYS_JSON, *FILES, *ONE_VALUE, *INSTALLATION}
    missing = {name for name, has in commands(lethe) if not has}
    assert missing == known
