"""Sessions with tokens: one for each token and process, logged in when it is first needed.

A library is initialised without threads, as python-pkcs11 does it: a process makes one call at
a time. What it has of a library ends with a fork (PKCS #11 3.1 section 5.4): the child begins
anew at its first call. A session that its token ended is opened once more.

Tokens lock a PIN after some wrong ones, for good. So a PIN that was refused is not tried again
by the same process.
"""

import os
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pkcs11
from pkcs11 import Attribute, ObjectClass, PKCS11Error, Session

from app.hsm.errors import HsmError
from app.hsm.uri import KeyUri
from app.settings import Settings

T = TypeVar("T")
Pair = tuple[pkcs11.PrivateKey, pkcs11.PublicKey]


class _Process:
    """What this process has: initialised libraries, sessions, keys that were found in them."""

    def __init__(self, inherited: Collection[str] = ()) -> None:
        self.inherited = set(inherited)  # libraries that a parent initialised before the fork
        self.lock = threading.RLock()
        self.initialised: set[str] = set()
        self.sessions: dict[tuple[str, str], Session] = {}
        self.found: dict[KeyUri, Pair] = {}
        self.refused: set[tuple[str, str, str]] = set()


_here = _Process()


def _begin() -> None:
    global _here
    _here = _Process(_here.initialised | _here.inherited)


os.register_at_fork(after_in_child=_begin)


def call(settings: Settings, uri: KeyUri, act: Callable[[Session], T]) -> T:
    """Return what `act` returns, which is called in a session of the token, and twice at most.

    Raises:
        HsmError: The library, the token, the PIN or the key is not what it has to be.
    """
    with _here.lock:
        # The library looks for tokens when it is initialised, so one that came back is found.
        with suppress(PKCS11Error):
            return act(_session(settings, uri))
        end(settings)
        try:
            return act(_session(settings, uri))
        except PKCS11Error as error:
            end(settings)
            raise HsmError(_why(error, uri)) from None


def pair(session: Session, uri: KeyUri) -> Pair:
    """Return both halves of a key. Raises PKCS11Error: NoSuchKey, MultipleObjectsReturned."""
    if (found := _here.found.get(uri)) is None:
        private = one(session, uri, ObjectClass.PRIVATE_KEY)
        public = one(session, uri, ObjectClass.PUBLIC_KEY)
        assert isinstance(private, pkcs11.PrivateKey)
        assert isinstance(public, pkcs11.PublicKey)
        found = _here.found[uri] = private, public
    return found


def one(session: Session, uri: KeyUri, kind: ObjectClass) -> pkcs11.Object:
    """Return the one object of a kind that a URI names. Raises PKCS11Error as `pair`."""
    wanted: dict[Attribute, object] = {Attribute.CLASS: kind, Attribute.LABEL: uri.object}
    if uri.id:
        wanted[Attribute.ID] = uri.id
    found = list(session.get_objects(wanted))
    if not found:
        raise pkcs11.NoSuchKey
    if len(found) > 1:
        raise pkcs11.MultipleObjectsReturned
    return found[0]


def end(settings: Settings) -> None:
    """End this process's sessions; the next call begins with the library's initialisation."""
    with _here.lock:
        _here.sessions.clear()
        _here.found.clear()
        _finalize(settings.pkcs11_module, _here.initialised)


def _session(settings: Settings, uri: KeyUri) -> Session:
    place = uri.token, uri.serial
    if (found := _here.sessions.get(place)) is not None:
        return found
    token = _token(settings, uri)
    pin = _pin(settings, uri)
    if (*place, pin) in _here.refused:
        raise _wrong_pin(uri)
    try:
        session = token.open(user_pin=pin)
    except pkcs11.UserAlreadyLoggedIn:  # by a URI that names the token otherwise
        session = token.open()
    except (pkcs11.PinIncorrect, pkcs11.PinInvalid, pkcs11.PinLenRange):
        _here.refused.add((*place, pin))
        raise _wrong_pin(uri) from None
    except pkcs11.PinLocked:
        raise HsmError(f"the PIN of the token {uri.token} is locked: unlock it there") from None
    _here.sessions[place] = session
    return session


def _token(settings: Settings, uri: KeyUri) -> pkcs11.Token:
    _initialise(settings)
    tokens = [
        token
        for token in pkcs11.lib(settings.pkcs11_module).get_tokens(token_label=uri.token)
        if uri.serial in ("", token.serial.decode(errors="replace").strip(" \0"))
    ]
    if not tokens:
        raise pkcs11.NoSuchToken
    if len(tokens) > 1:
        raise pkcs11.MultipleTokensReturned
    return tokens[0]


def _initialise(settings: Settings) -> None:
    if not (path := settings.pkcs11_module):
        raise HsmError(
            "a key is in a PKCS#11 token: set LETHE_PKCS11_MODULE to the library of its maker"
        )
    if not Path(path).is_file():
        raise HsmError(
            "LETHE_PKCS11_MODULE is not the path of a library that can be loaded: "
            "set it to the library of the token's maker"
        )
    _finalize(path, _here.inherited)
    try:
        pkcs11.lib(path)
    except PKCS11Error as error:
        raise HsmError(
            "the library of LETHE_PKCS11_MODULE does not start "
            f"({type(error).__name__}): check its configuration and its maker's log"
        ) from None
    _here.initialised.add(path)


def _finalize(path: str, known: set[str]) -> None:
    if path in known:
        known.discard(path)
        with suppress(PKCS11Error):  # most know that they are in a child, and refuse
            pkcs11.lib(path).finalize()


def _pin(settings: Settings, uri: KeyUri) -> str:
    if uri.pin_source is not None:
        try:
            pin = uri.pin_source.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError):
            raise HsmError(
                f"the PIN file {uri.pin_source} cannot be read: check its path and permissions"
            ) from None
    else:
        pin = settings.pkcs11_pin.get_secret_value()
    if not pin:
        raise HsmError(
            f"there is no PIN for the token {uri.token}: set LETHE_PKCS11_PIN, or write "
            "?pin-source=file:/PATH at the end of its URI"
        )
    return pin


def _wrong_pin(uri: KeyUri) -> HsmError:
    return HsmError(
        f"the token {uri.token} refuses the PIN: correct LETHE_PKCS11_PIN or the PIN file. "
        "This process does not try the same one again: restart it if the token was mended"
    )


def _why(error: PKCS11Error, uri: KeyUri) -> str:
    """Return cause and remedy; never the library's own text."""
    match error:
        case pkcs11.NoSuchToken():
            return f"there is no token {uri.token}: connect it, and check LETHE_PKCS11_MODULE"
        case pkcs11.MultipleTokensReturned():
            return f"two tokens are named {uri.token}: add ;serial= to the URI"
        case pkcs11.NoSuchKey():
            return (
                f"the token {uri.token} lacks the private or the public half of the key "
                f"{uri.object}: restore the token, or name the right one"
            )
        case pkcs11.MultipleObjectsReturned():
            return f"two keys of the token {uri.token} are named {uri.object}: add ;id="
    return (
        f"the token {uri.token} does not answer ({type(error).__name__}): check that it is "
        "connected, and its maker's log"
    )
