"""How a network's weights were trained, sealed with them: the input of a repetition."""

from dataclasses import asdict, dataclass

from lethe import canonical
from workers.errors import ArtifactError

KIND = "network-state/1"


@dataclass(frozen=True, slots=True)
class TrainingState:
    """A training by its start, its rows and the dropped answers.

    start and data are hex SHA-256. missing: (round, client) of every answer that was requested
    and dropped; the names make this file personal data. exact: whether it was trained from the
    initial weights, so that repeating it gives the same bits.
    """

    start: str
    data: str
    rounds: int
    missing: tuple[tuple[int, str], ...] = ()
    exact: bool = True


def encode_state(state: TrainingState) -> bytes:
    """Return a state's canonical encoding."""
    return canonical.encode({"kind": KIND, **asdict(state)})


def decode_state(data: bytes) -> TrainingState:
    """Return the state of `encode_state`. Raises ArtifactError for any other bytes."""
    try:
        fields = canonical.decode(data)
        missing = tuple((int(round), str(client)) for round, client in fields.pop("missing"))
        if fields.pop("kind") == KIND:
            state = TrainingState(missing=missing, **fields)
            if encode_state(state) == data:
                return state
    except (canonical.NotCanonicalError, AttributeError, KeyError, TypeError, ValueError):
        pass  # reported below
    raise ArtifactError("these bytes are not a network's state: fetch it again")
