"""What removing records from a model comes to, whichever kind of model it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from workers.jobs.lesson import StoredBlock
from workers.jobs.versions import Encoded


@dataclass(frozen=True, slots=True, eq=False)
class UpdateResult:
    """The next version of a model: its artifacts, who made them, what is claimed of them.

    parameters and bounds are a certificate's: strings, of no client and no row. escalated:
    why the method that was asked for gave way to a retraining. secret: what only the verifier
    may see, sealed until the last certificate and then destroyed. repeated: it is a training
    that was repeated with the same result.
    """

    encoded: Encoded
    method: str
    method_version: str
    claim: str
    parameters: Mapping[str, str]
    bounds: Mapping[str, str] = field(default_factory=dict)
    escalated: str | None = None
    secret: bytes | None = None
    repeated: bool = False

    @property
    def name(self) -> str:
        """The method with the settings that differ, as certificates and the log name it."""
        return self.parameters.get("attempt", self.method)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """A version without some records, and what becomes of the blocks that held them.

    rest: what stays of each block, by its subject's id; None if nothing does. dropped: ids
    of records that go with a block though nobody asked. before: what the verifier compares
    with, to be sealed until the last certificate; it may hold what is erased. rows_gone: the
    salted digests of the rows that go; rows_learned: of a ridge head, with which version each
    of them came. round_id: of the masked round that the removal was part of.
    """

    made: UpdateResult
    rest: Mapping[int, StoredBlock | None]
    dropped: frozenset[str] = frozenset()
    before: bytes | None = None
    rows_gone: tuple[str, ...] = ()
    rows_learned: tuple[int, ...] = ()
    round_id: str | None = None
