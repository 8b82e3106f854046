"""The scores file: everything that a verdict of `empirical-approximate` uses, in one encoding.

A safetensors file (`workers.arrays`). It contains logits, labels and clients as numbers,
the salted digests of rows and the commitments of records: no id, no name, no row. For the purge
it contains only counts: nobody else can retry reading what was destroyed. For silos it contains
the number of answers that count.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import VERIFIERS
from workers.arrays import MALFORMED, decode_tensors, encode_tensors
from workers.errors import ArtifactError, RefusedError
from workers.judge.base import Probe, PurgeClaim, RetainedSetClaim, UpdateClaim
from workers.judge.policy.document import from_document, to_document
from workers.judge.policy.policy import LEAST_REFERENCES, MOST_REFERENCES
from workers.judge.samples.empirical_claim import EmpiricalClaim, ReferenceModels, TrainingCost
from workers.judge.samples.samples import halves
from workers.judge.scores.canary import canary_arrays, read_canary, said_of_canary
from workers.judge.scores.order import SIDES, CommittedRows, nameless
from workers.judge.silos import SilosClaim

# The version of the verifier that judged. An attempt before a certified one may have been
# judged by another release: the certificate names only the last version.
JUDGE, VERSION = "judge", VERIFIERS["empirical-approximate"]
VERSIONS = re.compile("[1-9][0-9]{0,3}")
KIND = "empirical-scores/1"
KIND_TRAINED = "empirical-scores/2"  # with the outputs of models that the judge trained itself
SPARE = 10_000  # probes that belong to no record, such as versions
SIZE = 32  # bytes of a commitment or a digest
PARTS = ("labels", "before", "after")
PLAIN = ("published_digest", "model", "finite", "policy_digest", "requests_before")
PAIRS = ("rows_before", "rows_after", "model_before")
SETS, UPDATES = ("before", "after", "erased"), ("earlier", "later", "added")
ENDS = ("before_count", "after_count")
ROOTS = ("before_root", "after_root")

_Arrays = dict[str, NDArray[Any]]
_Fields = dict[str, Any]
MEMBER = "trained"
REFERENCES, RETRAINED, GAP = "references", "retrained", "parameter_gap"
RETAINED = "retrained_retained"


def encode_scores(claim: EmpiricalClaim, rows: CommittedRows, judge: str = VERSION) -> bytes:
    """Return the file of a claim and of the rows that its scores belong to.

    judge: the version of the verifier. Row order and names are not kept (`nameless`), so the
    judge reads the result of `decode_scores`, not `claim`. Raises ArtifactError for a claim
    whose parts do not fit each other.
    """
    claim, rows = nameless(claim, rows)
    arrays: _Arrays = {
        f"{s}_{part}": getattr(claim, f"{s}_{part}") for s in SIDES for part in PARTS
    }
    arrays |= {f"{side}_strata": getattr(claim, f"{side}_clients") for side in SIDES[:2]}
    arrays |= canary_arrays(claim.canary)
    sets, update = claim.retained_set, claim.retained_set.update
    arrays |= {f"set_{name}": _packed(getattr(sets, name)) for name in SETS}
    if update is not None:
        arrays |= {f"update_{name}": _packed(getattr(update, name)) for name in UPDATES}
    stored, gone = sorted(rows.stored), sorted(rows.gone)
    arrays |= {"rows_stored": _digests(stored), "rows_gone": _digests(gone)}
    place = {digest: number for number, digest in enumerate([*stored, *gone])}
    for side in SIDES:
        scored = getattr(rows, side)
        if not place.keys() >= set(scored):
            raise ArtifactError("a row was scored that no version commits to")
        arrays[f"{side}_rows"] = np.array([place[one] for one in scored], dtype=np.int64)
    erased, left = set(claim.purge.erased_rows), set(claim.purge.retained_rows)
    own_models, trained = write_trained(claim, rows)
    arrays |= own_models
    metadata = {
        **trained,
        **{name: getattr(claim, name) for name in PLAIN},
        **{name: list(getattr(claim, name)) for name in PAIRS},
        **said_of_canary(claim.canary),
        JUDGE: judge,
        "kind": KIND_TRAINED if trained else KIND,
        "policy": to_document(claim.policy),
        "purge": {
            "both": len(erased & left),
            "erased": len(erased),
            "probes": len(claim.purge.probes),
            "readable": sum(probe.readable is not False for probe in claim.purge.probes),
            "stored": len(left),
        },
        "retained_set": _ends(sets),
        "seed": claim.seed.hex(),
        "silos": None if claim.silos is None else asdict(claim.silos),
        "update": None if update is None else _ends(update),
    }
    return encode_tensors(arrays, metadata)


def decode_scores(data: bytes) -> tuple[EmpiricalClaim, CommittedRows]:
    """Return the claim and its rows. Raises ArtifactError for any other encoding."""
    try:
        arrays, said = decode_tensors(data)
        rows = _rows(arrays)
        claim = _claim(arrays, said, rows)
        if encode_scores(claim, rows, _read_judge(said)) == data:
            return claim, rows
    except (IndexError, RefusedError, *MALFORMED):
        pass  # reported below, like bytes that parse but differ
    raise ArtifactError("these bytes are no scores file: fetch it again")


def judge_of(data: bytes) -> str:
    """Return the version that judged a file, which must be valid for `decode_scores`."""
    return _read_judge(decode_tensors(data)[1])


def _read_judge(said: Mapping[str, Any]) -> str:
    judge = said.get(JUDGE)
    if not isinstance(judge, str) or not VERSIONS.fullmatch(judge):
        raise ArtifactError("a version is a number in quotes")
    return judge


def _claim(arrays: _Arrays, said: _Fields, rows: CommittedRows) -> EmpiricalClaim:
    update = said["update"]
    sets = RetainedSetClaim(
        **_lists(arrays, "set", SETS),
        **_read_ends(said["retained_set"]),
        update=None
        if update is None
        else UpdateClaim(
            **_lists(arrays, "update", UPDATES),
            **_read_ends(update),
        ),
    )
    given: _Fields = {f"{s}_{part}": arrays[f"{s}_{part}"] for s in SIDES for part in PARTS}
    given |= {f"{side}_clients": arrays[f"{side}_strata"] for side in SIDES[:2]}
    given |= {name: said[name] for name in PLAIN}
    given |= {name: _pair(said[name]) for name in PAIRS}
    seed = bytes.fromhex(said["seed"])
    given |= read_trained(arrays, said, seed, rows)
    return EmpiricalClaim(
        retained_set=sets,
        purge=_purge(said["purge"], most=_listed(arrays) + SPARE),
        policy=from_document(said["policy"]),
        seed=seed,
        silos=_silos(said["silos"]),
        canary=read_canary(arrays, said),
        unseen=len(set(rows.pool) & set(rows.gone)),
        **given,
    )


def _silos(said: _Fields | None) -> SilosClaim | None:
    if said is None:
        return None
    claim = SilosClaim(**said)
    numbers = (claim.asked, claim.answered, *claim.faults.values())
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ArtifactError("silos are counted from 0")
    if len(claim.keys) != claim.answered:
        raise ArtifactError("each answer that counts has one key")
    for silo, key in claim.keys.items():
        if str(int(silo)) != silo or not 0 <= int(silo) < claim.asked or len(key) != 2 * SIZE:
            raise ArtifactError("keys are named by silo and SHA-256")
        if bytes.fromhex(key).hex() != key:
            raise ArtifactError("a digest is in lower-case hex")
    return claim


def _listed(arrays: _Arrays) -> int:
    """Return how many commitments and rows a file lists."""
    prefixes = ("set_", "update_", "rows_")
    return sum(len(array) for name, array in arrays.items() if name.startswith(prefixes))


def _purge(said: _Fields, most: int) -> PurgeClaim:
    """Return a purge with the counted numbers of probes and rows, at most `most`.

    The file gives only counts: a small file could make its reader build any number of them.
    """
    probes, readable = said["probes"], said["readable"]
    erased, stored, both = said["erased"], said["stored"], said["both"]
    if max(probes, erased, stored) > most:
        raise ArtifactError("the purge is of more than the file has records")
    if not (0 <= readable <= probes and 0 <= both <= min(erased, stored)):
        raise ArtifactError("the numbers of the purge contradict each other")
    return PurgeClaim(
        [Probe("", "", place < readable) for place in range(probes)],
        [str(row) for row in range(erased)],
        [str(row) for row in range(erased - both, erased - both + stored)],
    )


def _pair(values: Sequence[str]) -> tuple[str, str]:
    claimed, found = values
    return claimed, found


def _lists(arrays: _Arrays, of: str, names: Sequence[str]) -> _Fields:
    return {name: _unpacked(arrays[f"{of}_{name}"]) for name in names}


def _ends(of: RetainedSetClaim | UpdateClaim) -> _Fields:
    roots = {name: getattr(of, name).hex() for name in ROOTS}
    return {**roots, **{name: getattr(of, name) for name in ENDS}}


def _read_ends(said: _Fields) -> _Fields:
    roots = {name: bytes.fromhex(said[name]) for name in ROOTS}
    return {**roots, **{name: said[name] for name in ENDS}}


def _rows(arrays: _Arrays) -> CommittedRows:
    stored, gone = (_read_digests(arrays[f"rows_{name}"]) for name in ("stored", "gone"))
    every = [*stored, *gone]
    scored = {side: [every[place] for place in arrays[f"{side}_rows"]] for side in SIDES}
    return CommittedRows(stored, gone, **scored)


def _packed(values: Sequence[bytes]) -> NDArray[np.int64]:
    """Return commitments as (n, 5) int64: the length, then 32 bytes.

    A stored row without its record has an empty commitment, which the verdict reports: it is
    kept.
    """
    if any(len(value) > SIZE for value in values):
        raise ArtifactError("a commitment has more than 32 bytes")
    sizes = np.array([len(value) for value in values], dtype=np.int64)
    return np.column_stack([sizes, _digests([value.ljust(SIZE, b"\0") for value in values])])


def _unpacked(packed: NDArray[np.int64]) -> list[bytes]:
    sizes = packed[:, 0].tolist()
    return [
        value[:size] for size, value in zip(sizes, _read_digests(packed[:, 1:]), strict=True)
    ]


def _digests(values: Sequence[bytes]) -> NDArray[np.int64]:
    """Return values of 32 bytes as (n, 4) int64, least significant byte first."""
    if any(len(value) != SIZE for value in values):
        raise ArtifactError("a digest has 32 bytes")
    found = np.frombuffer(b"".join(values), dtype="<i8").astype(np.int64)
    return found.reshape(-1, SIZE // 8)


def _read_digests(values: NDArray[np.int64]) -> list[bytes]:
    data = values.astype("<i8").tobytes()
    return [data[place : place + SIZE] for place in range(0, len(data), SIZE)]


def write_trained(
    claim: EmpiricalClaim, rows: CommittedRows
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the outputs and cost of the judge's own models, empty if it trained none.

    The models are not kept: reference models have seen erased rows. Which of them saw which row
    is not kept either, but redrawn from the seed (`halves`). Of the parameters only the gap is
    kept, two numbers, which decide nothing.

    Raises ArtifactError for reference models that were not trained on the rows drawn by the
    seed, and for outputs without a training cost.
    """
    if claim.trained is None:
        models = (claim.references, claim.retrained, claim.retrained_retained)
        if any(part is not None for part in (*models, claim.parameter_gap)):
            raise ArtifactError("what was trained for a verdict needs its cost beside it")
        return {}, {}
    arrays: dict[str, NDArray[Any]] = {}
    if claim.references is not None:
        logits, included = claim.references.logits, claim.references.included
        drawn = halves(claim.seed, len(logits), [*rows.forget, *rows.pool])
        if included.shape != drawn.shape or (included != drawn).any():
            raise ArtifactError("a reference model was trained on other rows than were drawn")
        arrays[REFERENCES] = _floats(logits)
    if claim.retrained is not None:
        arrays[RETRAINED] = _floats(claim.retrained)
    if claim.retrained_retained is not None:
        arrays[RETAINED] = _floats(claim.retrained_retained)
    gap = None if claim.parameter_gap is None else list(claim.parameter_gap)
    return arrays, {MEMBER: {**asdict(claim.trained), GAP: gap}}


def read_trained(
    arrays: Mapping[str, NDArray[Any]],
    said: Mapping[str, Any],
    seed: bytes,
    rows: CommittedRows,
) -> dict[str, Any]:
    """Return the fields of a claim that `write_trained` wrote.

    Raises ArtifactError, or one of `tensor_file.MALFORMED`, for anything else.
    """
    if MEMBER not in said:
        return {}
    fields = dict(said[MEMBER])
    gap = fields.pop(GAP)
    trained = TrainingCost(**fields)
    counts = (trained.references, trained.retrained)
    if any(type(count) is not int or count < 0 for count in counts):
        raise ArtifactError("operations are counted from 0")
    if type(trained.missing) is not str:
        raise ArtifactError("a reason is given in words")
    found: dict[str, Any] = {name: arrays.get(name) for name in (RETRAINED, RETAINED)}
    found[MEMBER] = trained
    found[GAP] = None if gap is None else _gap(*gap)
    if REFERENCES in arrays:
        logits = arrays[REFERENCES]
        tested = [*rows.forget, *rows.pool]
        if logits.ndim != 3 or logits.shape[1] != len(tested):
            raise ArtifactError("reference models answer with a matrix each, a row for a row")
        if not LEAST_REFERENCES <= len(logits) <= MOST_REFERENCES:
            # Models without outputs take no bytes, but the draw takes some for each.
            raise ArtifactError("no policy asks for so many reference models")
        drawn = halves(seed, len(logits), tested)
        found[REFERENCES] = ReferenceModels(logits, drawn)
    return found


def _gap(absolute: float, relative: float) -> tuple[float, float]:
    if not all(type(one) is float and isfinite(one) for one in (absolute, relative)):
        raise ArtifactError("a gap is two numbers")
    return absolute, relative


def _floats(logits: NDArray[Any]) -> NDArray[Any]:
    if logits.dtype != np.float64:
        raise ArtifactError("scores are float64 logits")
    return logits
