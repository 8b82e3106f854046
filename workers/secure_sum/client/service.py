"""The HTTP calls of masked rounds, on top of the general client."""

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from lethe import canonical
from lethe.client import Client
from lethe.client.answers import Document
from lethe.client.calls import JSON, Call, operator_get


class RoundClient(Client):
    """A `Client` that opens rounds (with a token) and takes part in them (with a key)."""

    def open_round(
        self,
        model: str,
        members: Sequence[str],
        *,
        threshold: int | None = None,
        step_seconds: int | None = None,
    ) -> Document:
        """Open a round on a masked model; needs an operator's token."""
        wanted: dict[str, object] = {"model": model, "members": list(members)}
        if threshold is not None:
            wanted["threshold"] = threshold
        if step_seconds is not None:
            wanted["step_seconds"] = step_seconds
        headers = {"Content-Type": JSON, "Accept": JSON}
        body = canonical.encode(wanted)
        return self._object(Call("POST", "/v1/rounds", "token", headers=headers, body=body))

    def round(self, round_id: str) -> Document:
        """Return a round in the operator's view."""
        return self._object(operator_get("rounds", round_id))

    def rounds(self) -> Iterator[Document]:
        """Iterate over all rounds."""
        return self._items(operator_get("rounds"))

    def abort_round(self, round_id: str) -> Document:
        """End a round whose members may still send; needs an operator's token."""
        return self._object(Call("POST", f"{_path(round_id)}/abort", "token"))

    def asked_rounds(self) -> list[Document]:
        """Return the open rounds that name the signing key."""
        return list(self._items(Call("GET", "/v1/rounds/asked", "signature")))

    def work(self, round_id: str) -> Document:
        """Return a round in the signing member's view."""
        return self._object(Call("GET", f"{_path(round_id)}/work", "signature"))

    def send(self, round_id: str, step: str, message: bytes) -> Document:
        """Send the signing member's message for a step."""
        path = f"{_path(round_id)}/messages/{step}"
        headers = {"Content-Type": JSON, "Accept": JSON}
        return self._object(Call("PUT", path, "signature", headers=headers, body=message))


def _path(round_id: str) -> str:
    return f"/v1/rounds/{quote(round_id, safe='')}"
