"""`lethe login`, `lethe logout` and `lethe completion`: settings shared by all commands."""

import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from lethe.cli import saved
from lethe.cli.options import plain

_FILE = click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path)


@click.command()
@click.argument("url")
@click.option("--key", type=_FILE, help="The private key (PEM) that signs your requests.")
@click.option("--keyid", help="Its keyid. Default: the key's fingerprint.")
@click.option("--log-key", type=_FILE, help="The log's vkey, by which receipts are verified.")
@click.option(
    "--no-token", is_flag=True, help="Do not ask for a token: you only sign requests."
)
def login(
    url: str, key: Path | None, keyid: str | None, log_key: Path | None, no_token: bool
) -> None:
    """Save the service at URL, its token and your key for the commands that follow.

    Asks for the token, or reads it from standard input, and tries it before anything is
    saved. Options and environment variables of a command still come first; a token and a key
    are used for URL only. `lethe logout` deletes them.
    """
    if keyid is not None and key is None:
        raise click.UsageError("--keyid needs --key")
    token = None if no_token else _token()
    if token is None and key is None:
        raise click.UsageError("nothing to save: give a token or --key")
    if token is not None:
        _try(url, token)
    chosen = saved.Login(
        url=url,
        token=token,
        key=None if key is None else str(key),
        keyid=keyid,
        log_key=None if log_key is None else str(log_key),
    )
    click.echo(f"saved in {saved.write(chosen)}")


@click.command()
def logout() -> None:
    """Delete the saved service, token and path of the key. The key itself stays."""
    click.echo("deleted" if saved.forget() else "nothing was saved")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands and options of `lethe`.

    bash: eval "$(lethe completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc. fish: lethe
    completion fish > ~/.config/fish/completions/lethe.fish
    """
    made = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert made is not None
    click.echo(made(root, {}, "lethe", "_LETHE_COMPLETE").source())


def _token() -> str | None:
    if sys.stdin.isatty():
        given = click.prompt("token (empty for none)", default="", hide_input=True, err=True)
    else:
        given = sys.stdin.readline()
    return given.strip() or None


def _try(url: str, token: str) -> None:
    """Fail with a message if the service does not accept the token."""
    from lethe.client import Client, ProblemError

    with Client(url, token=token) as service:
        try:
            next(service.requests(page_size=1), None)
        except ProblemError as error:
            raise click.ClickException(
                f"nothing was saved: the service answers {plain(error.detail)}"
            ) from None
