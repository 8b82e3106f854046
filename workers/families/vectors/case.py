"""The verifier's input for vector indexes: its own build, and the probe of the new bytes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache

import numpy as np
from sqlmodel import Session

from lethe.certificates import shape
from lethe.certificates.evidence import Removal
from workers.cases.case import ExecutedJob, Judges
from workers.families.recipe.case import ModelRows, OwnFit, prepare, same_machine
from workers.families.vectors.update import Erased, built, claim_of, options_of
from workers.judge.bytes_probe import ProbeClaim, Sought, probe
from workers.judge.checks import ODD_INPUT
from workers.judge.refitted import EXACT, VERIFIER
from workers.leases import checkpoints
from workers.leases.lease import JobContext
from workers.training.recipes.fit import FitRows
from workers.training.vectors import files
from workers.training.vectors.index import HNSW, VectorIndex

TABLE = "ids"  # the file exported with the index
# Bytes of headers, hard-coded: a build without rows could itself contain traces.
WORDS = (
    b"__metadata__ data_offsets dtype shape lethe centroids levels neighbours sizes vectors "
    b"columns index kind vectors/1 metric probes ef_construction ef_search entry seed "
    b"inner-product vectors-state/1"
)


def prepare_vectors(job: JobContext, session: Session, cases: Sequence[ExecutedJob]) -> Judges:
    """Load the results of executed jobs of one version of an index; the result judges them."""
    from workers.training.vectors import faiss_file  # FAISS

    case, *_ = cases
    verifiers = {one.id: one for one in (EXACT, VERIFIER)}
    verifier = verifiers[claim_of(options_of(case.model))]
    graph = options_of(case.model).index == HNSW
    # Without graph links, every machine builds the same bytes.
    alike = not graph or same_machine(case, faiss_file.environment())

    def own(left: ModelRows) -> OwnFit:
        state = job.services.artifacts.get(session, case.after.state_id)
        new = {"model": left.file, "state": state}
        erased = _erased(job, session)
        logged = None if erased is None else _is_logged(erased, cases)

        @cache
        def probed() -> ProbeClaim:  # once for all requests of the version
            if erased is None:
                return ProbeClaim(0, 0, 0, 0, None)
            return _probed(case, left.table(), new, erased, logged)

        found = OwnFit.of_all(left, verifier, alike, lambda rows: built(case.model, rows))
        return replace(found, complete=lambda claim, *_: replace(claim, probe=probed()))

    return prepare(job, session, cases, own, verifier)


def exports(index: VectorIndex) -> dict[str, bytes]:
    """Return every file exported from a published one, by name."""
    from workers.training.vectors import faiss_file  # FAISS

    return {"faiss": faiss_file.to_bytes(index), TABLE: files.id_table(index)}


def _probed(
    case: ExecutedJob,
    rows: FitRows,
    new: Mapping[str, bytes],
    erased: Erased,
    logged: bool | None,
) -> ProbeClaim:
    options = options_of(case.model)
    found = dict(new)
    with suppress(*ODD_INPUT, RuntimeError, MemoryError):  # an invalid index does not pass
        found |= exports(files.decode(new["model"]))
    sought = Sought(
        vectors=erased.block.features.astype(np.float32),
        ids=erased.block.records,
        retained=rows.features.astype(np.float32),
        retained_ids=set(rows.records),
        public=options.centroids,
        words=WORDS,
    )
    traces, unlike = probe(found, {TABLE}, sought)
    return ProbeClaim(len(found), len(sought.ids), traces, unlike, logged)


def _erased(job: JobContext, session: Session) -> Erased | None:
    """Return the erased rows as sealed at execution, None if they were not kept."""
    kept = checkpoints.load_before(job, session)
    return None if kept is None else Erased.decode(kept)


def _is_logged(erased: Erased, cases: Sequence[ExecutedJob]) -> bool:
    """Return whether these are the erased rows, by the digests that check 7 sums up."""
    removed = {
        record.record
        for case in cases
        for record in shape.read(Removal, case.plan.removal).records
    }
    gone = [sorted(case.plan.rows_gone) for case in cases]
    named = removed <= set(erased.block.records)
    return named and all(erased.digests() == digests for digests in gone)
