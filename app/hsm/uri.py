"""PKCS#11 URIs (RFC 7512): which key, in which token.

A key file has one in place of a private key: `pkcs11:token=lethe;object=log`. Of the RFC's
attributes these name a key without a doubt, whichever slot its token is in.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes, urlsplit

from app.hsm.errors import HsmError

SCHEME = "pkcs11:"
FORM = (
    "write pkcs11:token=LABEL;object=LABEL (RFC 7512), with ;serial= or ;id= if two share one"
)
ATTRIBUTES = ("token", "serial", "object", "id")
# Whoever can write a key file must not choose the code that this process runs, and a PIN in
# the file would lie beside what it opens.
ELSEWHERE = {
    "module-path": "set LETHE_PKCS11_MODULE to the library's path",
    "module-name": "set LETHE_PKCS11_MODULE to the library's path",
    "pin-value": "set LETHE_PKCS11_PIN, or name a file that holds it: ?pin-source=file:/PATH",
}
_NUMBERED = re.compile(r"(.+)-[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class KeyUri:
    """A key: `token` and `object` are labels, `id` is the object's CKA_ID, empty for any.

    `pin_source` is the file of the token's PIN; without one the settings have it.
    """

    token: str
    object: str
    serial: str = ""
    id: bytes = b""
    pin_source: Path | None = None

    def __str__(self) -> str:
        parts = [f"token={quote(self.token, safe='')}"]
        if self.serial:
            parts.append(f"serial={quote(self.serial, safe='')}")
        parts.append(f"object={quote(self.object, safe='')}")
        if self.id:
            parts.append("id=" + "".join(f"%{byte:02X}" for byte in self.id))
        source = (
            "" if self.pin_source is None else f"?pin-source=file:{quote(str(self.pin_source))}"
        )
        return SCHEME + ";".join(parts) + source

    def numbered(self, number: int) -> "KeyUri":
        """Return the place of the key with this number in the same token: `log-2`."""
        match = _NUMBERED.fullmatch(self.object)
        stem = match[1] if match else self.object
        return replace(self, object=f"{stem}-{number}", id=b"")


def parse_uri(text: str) -> KeyUri:
    """Read the URI of a key.

    Raises:
        HsmError: It is none, or has an attribute that is not used here.
    """
    text = text.strip()
    if not text.startswith(SCHEME):
        raise HsmError(f"this is no PKCS#11 URI: {FORM}")
    path, _, query = text.removeprefix(SCHEME).partition("?")
    given: dict[str, bytes] = {}
    for part in [*path.split(";"), *(query.split("&") if query else ())]:
        name, separator, value = part.partition("=")
        if name in ELSEWHERE:
            raise HsmError(f"{name} is not taken from a PKCS#11 URI: {ELSEWHERE[name]}")
        if name in given or name not in (*ATTRIBUTES, "type", "pin-source") or not separator:
            raise HsmError(f"a PKCS#11 URI has an attribute twice, or one unknown here: {FORM}")
        given[name] = unquote_to_bytes(value)
    if given.pop("type", b"private") != b"private":
        raise HsmError(
            "the PKCS#11 URI names an object that is no private key: write "
            "type=private, or leave type out"
        )
    identifier = given.pop("id", b"")
    source = given.pop("pin-source", None)
    try:
        labels = {name: value.decode() for name, value in given.items()}
        pin_source = None if source is None else _path(source.decode())
    except UnicodeDecodeError:
        raise HsmError(
            "the token or object in the PKCS#11 URI is not UTF-8: percent-encode "
            "its label's UTF-8"
        ) from None
    if not labels.get("token") or not labels.get("object"):
        raise HsmError(f"the PKCS#11 URI lacks a token or an object: {FORM}")
    if not all(value.isprintable() for value in labels.values()):
        raise HsmError(
            "the token or object in the PKCS#11 URI has a control character: correct its label"
        )
    return KeyUri(**labels, id=identifier, pin_source=pin_source)


def _path(source: str) -> Path:
    """Return the file of a `pin-source`, a `file:` URI or a path (RFC 7512 section 2.4)."""
    path = Path(urlsplit(source).path if source.startswith("file:") else source)
    if not path.is_absolute():
        raise HsmError("pin-source of a PKCS#11 URI is a file: ?pin-source=file:/PATH")
    return path
