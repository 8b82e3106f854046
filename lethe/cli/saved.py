"""The settings that `lethe login` saves for other commands: a service, and credentials.

One file, readable only by its owner. A token or key is used only for the service that it was
saved with: with `--url`, another service must not receive it.
"""

import json
import os
import stat
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lethe.errors import LetheError
from lethe.records import dataclass

if TYPE_CHECKING:
    from lethe.client import Client

ENVIRONMENT = "LETHE_CONFIG"


class LoginError(LetheError):
    """The saved login cannot be read or written."""

    slug, title = "login", "The saved login cannot be used"


@dataclass(frozen=True, slots=True)
class Login:
    """A service and its caller's credentials; paths are absolute. None: not saved."""

    url: str
    token: str | None = None
    key: str | None = None
    keyid: str | None = None
    log_key: str | None = None

    def is_for(self, url: str) -> bool:
        """Return whether this is the login of the service at `url`."""
        return self.url.rstrip("/") == url.rstrip("/")


def path() -> Path:
    """Return the login file: LETHE_CONFIG, or in the user's configuration directory."""
    chosen = os.environ.get(ENVIRONMENT)
    return Path(chosen) if chosen else Path(click.get_app_dir("lethe")) / "login.toml"


def read() -> Login | None:
    """Return the saved login, None if there is none.

    Raises LoginError: the file cannot be read, or others than its owner can read it.
    """
    import tomllib  # imported only after a login

    file = path()
    try:
        mode = file.stat().st_mode
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        raise LoginError(f"{file} cannot be read: run `lethe login` again") from None
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise LoginError(f"{file} holds a token that others can read: chmod 600 {file}")
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        found = {}
    known = {field.name for field in fields(Login)}
    if "url" not in found or not all(
        name in known and isinstance(value, str) for name, value in found.items()
    ):
        raise LoginError(f"{file} is not a saved login: run `lethe login` again")
    return Login(**found)


def write(login: Login) -> Path:
    """Save a login, replacing the previous one, and return the file.

    Raises LoginError: the file cannot be written.
    """
    file = path()
    try:
        data = "".join(
            f"{name} = {_quoted(value)}\n" for name, value in asdict(login).items() if value
        ).encode()
    except UnicodeEncodeError:
        raise LoginError(
            "nothing was saved: a path or token is not UTF-8; rename the file"
        ) from None
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
        fresh.replace(file)
    except OSError as error:
        raise LoginError(f"{file} cannot be written: {error.strerror}") from None
    return file


def _quoted(text: str) -> str:
    # JSON strings are valid TOML, except for surrogate pairs and a bare DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def forget() -> bool:
    """Delete the saved login; return whether there was one."""
    try:
        path().unlink()
    except FileNotFoundError:
        return False
    return True


def of(url: str) -> Login | None:
    """Return the saved login if it is for the service at `url`."""
    login = read()
    return login if login is not None and login.is_for(url) else None


def token_for(url: str) -> str | None:
    """Return the token to send to `url`: LETHE_TOKEN, or the saved one."""
    if given := os.environ.get("LETHE_TOKEN"):
        return given
    login = of(url)
    return None if login is None else login.token


def client(url: str) -> "Client":
    """Return a client of the service at `url`, with its token."""
    from lethe.client import Client

    return Client(url, token=token_for(url))
