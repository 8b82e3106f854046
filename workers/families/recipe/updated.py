"""Families whose model is updated by added and removed rows; the judge refits it.

The sealed state makes an update cheaper than a fit. A version is the same whether it was
updated or fitted: if the state is damaged or of other rows, a fit replaces it. So the class is
`exact`. The state has no history either: the judge makes its own and compares the bytes, since
a state that still holds an erased row would publish it with the next contribution.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlmodel import Session

from lethe.certificates.statement import Guarantee
from models import Model, ModelVersion
from workers.cases.case import ExecutedJob, Judges
from workers.families.base import LacksLibraryError
from workers.families.recipe.case import ModelRows, OwnFit, prepare
from workers.families.recipe.family import RecipeFamily
from workers.families.recipe.rows import (
    TableBlock,
    all_digests,
    current_rows,
    departure,
    digest_of_rows,
)
from workers.judge.refitted import EXACT, RefittedClaim
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.lineage.logged import require_rows
from workers.training.recipes.fit import FitRows
from workers.updates.draft import Draft, sha256_hex
from workers.updates.update import Encoded, ParsedUpload, Update, UpdateResult, split

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CLAIM, VERSION = "exact", "1"
State = TypeVar("State")


class NoNumbaError(LacksLibraryError):
    """This worker cannot fit exact models; another may, so the job waits."""

    slug, title = "no-numba", "numba is not installed"
    modules, extra, named = ("numba", "sklearn"), "estimators", "numba"


class UpdatedFamily(RecipeFamily, Generic[State]):
    """A model in memory, `State`, that adds and removes rows.

    method: of the catalogue. meaning: what its certificates guarantee, as text.
    """

    lacks = NoNumbaError
    method: str
    meaning: str

    @abstractmethod
    def fitted(self, model: Model, blocks: Sequence[TableBlock]) -> State:
        """Return the model of some rows. Raises RefusedError for rows that it cannot learn."""

    @abstractmethod
    def opened(
        self, model: Model, state: bytes, blocks: Sequence[TableBlock], data: str
    ) -> State | None:
        """Return the model of a sealed state, None if it is not of this model and these rows.

        Only the service can seal a state, but a person with write access to the database can
        point at another one: of another model that was registered alike, or of an earlier
        version.

        data: the digest of the rows of `blocks` with their salts.
        """

    @abstractmethod
    def add(self, model: Model, state: State, blocks: Sequence[TableBlock]) -> State:
        """Return the model with more rows. Raises RefusedError as `fitted`."""

    @abstractmethod
    def remove(self, state: State, blocks: Sequence[TableBlock]) -> State:
        """Return the model without some of its rows."""

    def serves(self, model: Model, state: State, blocks: Sequence[TableBlock]) -> bool:
        """Return whether the state's other parts, such as bins from rows, fit these rows.

        If not, an update refits.
        """
        return True

    @abstractmethod
    def published(self, model: Model, state: State) -> bytes:
        """Return the published file. Raises RefusedError."""

    @abstractmethod
    def seal(self, state: State, rows: int, data: str) -> bytes:
        """Return the sealed state. data: the digest of its rows."""

    @abstractmethod
    def parameters(self, model: Model) -> dict[str, str]:
        """Return a certificate's parameters about the update, without the rows' location."""

    def learn(
        self,
        job: JobContext,
        before: ModelVersion | None,
        upload: ParsedUpload,
        salts: "NDArray[np.uint8]",
    ) -> UpdateResult:
        """Add an upload. Raises RefusedError if the model cannot learn its rows."""
        model = job.model
        new = [one for one in upload.blocks.values() if isinstance(one, TableBlock)]
        held, known = current_rows(job)
        blocks = list(held.values())
        known |= zip(upload.records, split(salts), strict=True)
        digests = all_digests(blocks, known)
        require_rows(before, digest_of_rows(digests.values()))
        state = None if before is None else self._opened(job, before, blocks, digests)
        # No judge follows: the state must at least lead to the file that the log has.
        if state is not None and before is not None:
            file = self.published(model, state)
            state = state if sha256_hex(file) == before.head_digest else None
        if state is None or not self.serves(model, state, [*blocks, *new]):
            state = self.fitted(model, [*blocks, *new])
        else:
            state = self.add(model, state, new)
        return self._result(model, state, digests | all_digests(new, known))

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Remove the members' records. Raises RefusedError."""
        self.check_here()
        found = departure(job, members)
        state = self._opened(job, before, list(found.blocks.values()), found.digests)
        if state is None or not self.serves(job.model, state, found.retained):
            state = self.fitted(job.model, found.retained)
        else:
            state = self.remove(state, found.leaving)
        result = self._result(job.model, state, found.retained_digests)
        return Update(result, found.rest, rows_gone=found.gone)

    def refit(self, job: JobContext) -> UpdateResult:
        """Refit on the retained rows. Raises RefusedError."""
        self.check_here()
        held, salts = current_rows(job)
        blocks = list(held.values())
        digests = all_digests(blocks, salts)
        return self._result(job.model, self.fitted(job.model, blocks), digests)

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load the results of executed jobs of a version; the result judges them.

        Judged are the version's file and its sealed state.
        """
        self.check_here()
        case, *_ = cases
        with job.services.artifacts.opened(session, case.after.state_id) as sealed:
            claimed = sealed.digest

        def own(stored: ModelRows) -> OwnFit:
            mine = ""  # the digest of the own state

            def fit(rows: FitRows) -> bytes:
                nonlocal mine
                state = self.fitted(case.model, [_block_of(rows)])
                mine = sha256_hex(self.seal(state, len(rows), found.data))
                return self.published(case.model, state)

            def complete(claim: RefittedClaim, *_: bytes) -> RefittedClaim:
                return replace(claim, state=(claimed, mine))

            # Sums of integers: the same on every machine.
            found = OwnFit.of_all(stored, EXACT, True, fit, complete)
            return found

        return prepare(job, session, cases, own, EXACT)

    def fitted_file(self, model: Model, rows: FitRows) -> bytes:
        """Return the file of a model fitted to rows. Raises RefusedError."""
        return self.published(model, self.fitted(model, [_block_of(rows)]))

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return the guarantee. Raises ValueError for another claim."""
        if plan.claim != CLAIM:
            raise ValueError(f"no verifier of {self.method} vouches for {plan.claim}")
        return Guarantee("exact", self.meaning, plan.bounds)

    def _opened(
        self,
        job: JobContext,
        version: ModelVersion,
        blocks: Sequence[TableBlock],
        digests: Mapping[str, bytes],
    ) -> State | None:
        with job.services.reading() as session:
            state = job.services.artifacts.get(session, version.state_id)
        data = digest_of_rows(digests.values())
        return self.opened(job.model, state, blocks, data)

    def _result(self, model: Model, state: State, digests: Mapping[str, bytes]) -> UpdateResult:
        data = digest_of_rows(digests.values())
        file, sealed = self.published(model, state), self.seal(state, len(digests), data)
        parameters: dict[str, Any] = {"data": "rows", **self.parameters(model)}
        return UpdateResult(
            encoded=Encoded(file, sealed, data),
            method=self.method,
            method_version=VERSION,
            claim=CLAIM,
            parameters=parameters,
        )


def _block_of(rows: FitRows) -> TableBlock:
    """Return rows as one block, with made-up ids if they have none: no file has ids."""
    names = list(rows.records) or [str(place) for place in range(len(rows))]
    return TableBlock(names, rows.features, rows.labels, rows.weights)
