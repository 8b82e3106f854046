"""A scores file gives the same verdict again, and reveals no names or row order."""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from tests.workers.judge.claims import commitment
from tests.workers.judge.empirical_claims import World, committed, noop, sets, simulated
from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError
from workers.judge.base import Probe, UpdateClaim
from workers.judge.merkle import merkle_root
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.scores.file import decode_scores, encode_scores
from workers.judge.scores.order import CommittedRows, problem_with
from workers.judge.silos import SilosClaim

HONEST = simulated(1)
ROWS = committed(HONEST)
FILE = encode_scores(HONEST, ROWS)
MISSING = SilosClaim(
    3, 1, {"no answer in time": 1, "an error at the silo": 1}, {"2": "ef" * 32}
)
BOTH = SilosClaim(2, 2, {}, {"0": "ab" * 32, "1": "cd" * 32})
SILOS = encode_scores(replace(HONEST, silos=MISSING), ROWS)
CLAIMS = {
    "PASS": HONEST,
    "FAIL": noop(HONEST),
    "INCONCLUSIVE": simulated(3, World(forget=(0.0, 0.0), retained=(0.0, 0.0))),
}


@pytest.mark.parametrize("result", CLAIMS)
def test_what_is_judged_can_be_judged_again_to_the_last_digit(result: str) -> None:
    data = encode_scores(CLAIMS[result], committed(CLAIMS[result]))
    claim, rows = decode_scores(data)
    first = VERIFIER.verify(claim)
    assert first.result == result
    again, _ = decode_scores(encode_scores(claim, rows))
    assert VERIFIER.verify(again) == first
    assert encode_scores(again, rows) == data


def test_every_logit_keeps_its_bits_and_its_label() -> None:
    odd = HONEST.forget_after.copy()
    odd[0] = [np.nan, -0.0, 5e-324, np.inf, 1 / 3]
    odd[1] = [np.pi, 2.0**-1074, -np.inf, 0.0, 1e308]
    claim = replace(HONEST, forget_after=odd)
    found, rows = decode_scores(encode_scores(claim, ROWS))

    def scored(of: EmpiricalClaim, digests: Iterable[bytes]) -> set[tuple[object, ...]]:
        parts = zip(
            of.forget_labels.tolist(), of.forget_before, of.forget_after, digests, strict=True
        )  # fmt: skip
        return {(label, a.tobytes(), b.tobytes(), row) for label, a, b, row in parts}

    assert scored(found, rows.forget) == scored(claim, ROWS.forget)
    assert len(scored(found, rows.forget)) == 500


def test_the_same_strata_are_left_of_the_clients() -> None:
    names = np.array(["anna", "ben"])
    claim = replace(
        HONEST,
        forget_clients=names[HONEST.forget_clients],
        pool_clients=names[HONEST.pool_clients],
    )
    found, _ = decode_scores(encode_scores(claim, ROWS))
    for side in ("forget", "pool"):
        numbers, sizes = np.unique(getattr(found, f"{side}_clients"), return_counts=True)
        assert numbers.tolist() == [0, 1]
        wanted = np.unique(getattr(claim, f"{side}_clients"), return_counts=True)[1]
        assert sorted(sizes.tolist()) == sorted(wanted.tolist())
    # Renaming people, or storing their rows in another order, leaves no trace.
    assert encode_scores(claim, ROWS) == FILE
    swapped = replace(claim, forget_clients=names[::-1][HONEST.forget_clients],
                      pool_clients=names[::-1][HONEST.pool_clients])  # fmt: skip
    assert encode_scores(swapped, ROWS) == FILE


def test_the_order_of_rows_is_not_that_in_which_they_came() -> None:
    turned = {
        f"forget_{part}": getattr(HONEST, f"forget_{part}")[::-1].copy()
        for part in ("labels", "clients", "before", "after")
    }
    back = replace(ROWS, forget=ROWS.forget[::-1])
    assert encode_scores(replace(HONEST, **turned), back) == FILE
    _, rows = decode_scores(FILE)
    assert list(rows.forget) != list(ROWS.forget)
    assert sorted(rows.forget) == sorted(ROWS.forget)


def test_neither_ids_nor_names_nor_probes_are_in_the_file() -> None:
    gone = sets(500)[1]
    gone = replace(
        gone,
        erased_rows=[f"patient-{row}" for row in range(500)],
        retained_rows=[f"patient-{row}" for row in range(500, 505)],
        probes=[Probe("owner-block", "ee" * 32, False)],
    )
    claim = replace(
        HONEST,
        purge=gone,
        forget_clients=np.full(500, "clinic-north"),
        pool_clients=np.full(600, "clinic-north"),
    )
    data = encode_scores(claim, ROWS)
    for word in ("patient", "clinic", "owner-block", "ee" * 32):
        assert word.encode() not in data
        assert word.encode("utf-32-le") not in data  # as NumPy would hold it


@pytest.mark.parametrize("readable", [0, 2])
def test_what_the_purge_came_to_is_kept_as_numbers(readable: int) -> None:
    probes = [Probe("state", "cd" * 32, place < readable) for place in range(3)]
    gone = replace(HONEST.purge, probes=probes, retained_rows=["1", "500", "501", "502"])
    claim = replace(HONEST, purge=gone)
    found, _ = decode_scores(encode_scores(claim, ROWS))
    for number in (2, 3):  # retained-set counts the stored rows, purge the readable
        wanted, again = (
            VERIFIER.verify(claim).checks[number],
            VERIFIER.verify(found).checks[number],
        )
        assert again == wanted
    assert (
        VERIFIER.verify(found).checks[3].value
        == f"{readable} of 3 readable, 1 erased rows stored"
    )


def test_a_row_stored_without_its_record_stays_refuted() -> None:
    kept = replace(HONEST.retained_set, after=[b"", *HONEST.retained_set.after])
    found, _ = decode_scores(encode_scores(replace(HONEST, retained_set=kept), ROWS))
    assert "not 32 bytes" in VERIFIER.verify(found).checks[2].value


def test_the_chain_of_an_update_is_kept() -> None:
    sets_ = HONEST.retained_set
    other = commitment(900)
    first = sorted([*sets_.before, other])
    update = UpdateClaim([other], [], merkle_root(first), len(first), sets_.after_root, 5)
    claim = replace(HONEST, retained_set=replace(sets_, update=update))
    found, _ = decode_scores(encode_scores(claim, ROWS))
    assert replace(found.retained_set, update=None) == sets_
    assert found.retained_set.update == replace(update, added=[])
    assert VERIFIER.verify(found).checks[2].passed


def test_masks_of_which_nothing_is_scored_have_a_file_too() -> None:
    empty: dict[str, Any] = {
        f"{side}_{part}": np.zeros(0, np.int64) if part == "labels" else np.zeros((0, 2))
        for side in ("forget", "pool", "retained")
        for part in ("labels", "before", "after")
    }
    claim = replace(
        HONEST, **empty, forget_clients=np.full(500, "a"), pool_clients=np.full(9, "b")
    )
    rows = replace(ROWS, forget=(), pool=(), retained=())
    found, tied = decode_scores(encode_scores(claim, rows))
    assert VERIFIER.verify(found) == VERIFIER.verify(claim)
    assert problem_with(found, tied) is None


@pytest.mark.parametrize("silos", [MISSING, BOTH, SilosClaim(2, 0, {"x": 2})])
def test_which_silos_answered_is_kept(silos: SilosClaim) -> None:
    claim = replace(HONEST, silos=silos)
    found, tied = decode_scores(encode_scores(claim, ROWS))
    assert found.silos == silos
    assert VERIFIER.verify(found).result == ("PASS" if silos.answered == 2 else "INCONCLUSIVE")
    # This is the only difference from the file of a single process.
    assert encode_scores(replace(found, silos=None), tied) == FILE


def test_where_no_silo_answered_there_is_a_file_too() -> None:
    none: dict[str, Any] = {
        f"{side}_{part}": np.zeros(0, np.int64) if part == "labels" else np.zeros((0, 2))
        for side in ("forget", "pool", "retained")
        for part in ("labels", "before", "after")
    }
    nobody = np.array([], dtype=np.str_)
    silos = SilosClaim(2, 0, {"no answer in time": 2})
    claim = replace(HONEST, **none, forget_clients=nobody, pool_clients=nobody, silos=silos)
    found, tied = decode_scores(encode_scores(claim, CommittedRows((), (), (), (), ())))
    assert VERIFIER.verify(found) == VERIFIER.verify(claim)
    assert VERIFIER.verify(found).result == "INCONCLUSIVE"
    assert problem_with(found, tied) is None


# --- bytes that are no scores file ---------------------------------------------------------


def _with(change: Callable[[dict[str, np.ndarray], dict[str, object]], None]) -> bytes:
    arrays, metadata = decode_tensors(SILOS)
    change(arrays, metadata)
    return encode_tensors(arrays, metadata)


def _swap(arrays: dict[str, np.ndarray], metadata: dict[str, object]) -> None:
    for part in ("labels", "before", "after", "strata", "rows"):
        values = arrays[f"forget_{part}"]
        values[[0, 1]] = values[[1, 0]]


MALFORMED: dict[str, Callable[[dict[str, np.ndarray], dict[str, object]], None]] = {
    "two rows in another order": _swap,
    "other numbers for clients": lambda a, m: a.update(
        forget_strata=1 - a["forget_strata"], pool_strata=1 - a["pool_strata"]
    ),
    "a member too many": lambda a, m: m.update(note="x"),
    "an array too many": lambda a, m: a.update(more=np.zeros(1)),
    "an array too few": lambda a, m: a.pop("pool_after") is None,  # type: ignore[dict-item]
    "another kind": lambda a, m: m.update(kind="empirical-scores/2"),
    "logits of half the precision": lambda a, m: a.update(
        forget_after=a["forget_after"].astype(np.float32)
    ),
    "a row that nobody committed to": lambda a, m: a.update(
        forget_rows=a["forget_rows"] + 10**6
    ),
    "a policy with a field too many": lambda a, m: m["policy"].update(x=1),  # type: ignore[attr-defined]
    "fewer silos than none": lambda a, m: m["silos"].update(answered=-1),  # type: ignore[attr-defined]
    "silos in words": lambda a, m: m["silos"].update(asked="three"),  # type: ignore[attr-defined]
    "a reason without a number": lambda a, m: m["silos"]["faults"].update(x=None),  # type: ignore[index]
    "a field too many of silos": lambda a, m: m["silos"].update(x=1),  # type: ignore[attr-defined]
    "reasons in a list": lambda a, m: m["silos"].update(faults=[1]),  # type: ignore[attr-defined]
    "no key of an answer": lambda a, m: m["silos"].update(keys={}),  # type: ignore[attr-defined]
    "more keys than answers": lambda a, m: m["silos"].update(keys=BOTH.keys),  # type: ignore[attr-defined]
    "a key of a silo that is none": lambda a, m: m["silos"].update(keys={"3": "ab" * 32}),  # type: ignore[attr-defined]
    "a silo in other digits": lambda a, m: m["silos"].update(keys={"01": "ab" * 32}),  # type: ignore[attr-defined]
    "a key that is no digest": lambda a, m: m["silos"].update(keys={"1": "AB" * 32}),  # type: ignore[attr-defined]
    "keys in a list": lambda a, m: m["silos"].update(keys=["ab" * 32]),  # type: ignore[attr-defined]
    "silos left out": lambda a, m: m.pop("silos") is None,  # type: ignore[dict-item]
    "more readable than probed": lambda a, m: m["purge"].update(readable=9),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("name", MALFORMED)
def test_other_spellings_are_refused(name: str) -> None:
    with pytest.raises(ArtifactError, match="no scores file"):
        decode_scores(_with(MALFORMED[name]))


@pytest.mark.parametrize("name", ["probes", "erased", "stored"])
def test_a_purge_of_more_than_the_file_has_records_is_refused_unbuilt(name: str) -> None:
    # Building that many would take more memory than available.
    data = _with(lambda a, m: m["purge"].update({name: 10**13}))  # type: ignore[attr-defined]
    with pytest.raises(ArtifactError, match="no scores file"):
        decode_scores(data)


def test_what_the_file_cannot_hold_is_refused() -> None:
    with pytest.raises(ArtifactError, match="no version commits"):
        encode_scores(HONEST, replace(ROWS, pool=[b"x" * 32] * 600))
    with pytest.raises(ArtifactError, match="one label"):
        encode_scores(replace(HONEST, forget_labels=HONEST.forget_labels[1:]), ROWS)


def test_no_field_of_a_claim_is_forgotten() -> None:
    """A field added to claims must be added to the file, or be refused by it."""
    found, _ = decode_scores(SILOS)
    changed = {f.name for f in fields(found) if getattr(found, f.name) is None}
    # test_scores_trained.py covers files with models that the judge trained.
    own = {"retrained", "retrained_retained", "parameter_gap", "references", "trained"}
    assert changed == {*own, "canary"}


# --- scores of rows that were committed to ---------------------------------------------------


def test_honest_rows_tie_the_scores_to_both_versions() -> None:
    claim, rows = decode_scores(FILE)
    assert problem_with(claim, rows) is None
    assert rows.before != rows.after


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"retained": [*ROWS.retained[1:], ROWS.retained[1]]}, "scored twice"),
        ({"retained": ROWS.pool[:300]}, "scored twice"),
        ({"stored": [*ROWS.stored, ROWS.gone[0]]}, "committed to twice"),
        ({"stored": [*ROWS.stored, ROWS.stored[0]]}, "committed to twice"),
        ({"forget": [*ROWS.forget[1:], b"x" * 32]}, "forget row is none"),
        ({"retained": [*ROWS.retained[1:], b"x" * 32]}, "retained row is none"),
        ({"pool": [*ROWS.pool[1:], b"x" * 32]}, "unseen row is none"),
        ({"pool": ROWS.pool[1:]}, "one row for each"),
    ],
)
def test_scores_of_other_rows_are_noticed(
    changes: dict[str, list[bytes]], problem: str
) -> None:
    assert problem in str(problem_with(HONEST, replace(ROWS, **changes)))
