"""Models fitted in one go: their checks are repeated from files, and planted changes show."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lethe import canonical
from lethe.certificates.statement import CheckPart, Guarantee, VerifierPart, VersionPart
from tests.workers.judge.empirical_claims import simulated
from tests.workers.judge.recheck.cases import REMOVAL, about, differing, issued, named
from workers.arrays import encode_tensors
from workers.judge.recheck.files import RecheckFiles
from workers.judge.recheck.lines import Recheck
from workers.judge.recheck.run import recheck
from workers.judge.refitted import ShardsClaim, check_untouched
from workers.training.shards import container
from workers.training.shards.container import ShardManifest, manifest_of
from workers.training.vectors import files as vector_files
from workers.training.vectors.build import build
from workers.training.vectors.index import VectorOptions

ROWS = about(simulated(1))[1]
BEFORE = [b"one", b"two", b"three", b"four"]
AFTER = [b"one", b"two", b"other", b"four"]
DIGESTS = ["a" * 64, "b" * 64, "c" * 64, "d" * 64]
LEFT = [*DIGESTS[:2], "e" * 64, DIGESTS[3]]
UNTOUCHED = "1 untouched-shards"
AGAIN = {
    "guarantee": Guarantee("exact-retrained", "Fitted again.", {}),
    "verifier": VerifierPart("exact-retrained", "2", "c" * 64),
}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def shards(
    before: ShardManifest | None = None,
    after: ShardManifest | None = None,
    *,
    model: bytes | None = None,
    parameters: Mapping[str, str] | None = None,
    statistics: Mapping[str, str] | None = None,
) -> Recheck:
    """Recheck an erasure from shard 2; the arguments replace the true values."""
    first, second = manifest_of("mean", BEFORE, DIGESTS), manifest_of("mean", AFTER, LEFT)
    honest = ShardsClaim(
        [2],
        [(one.file, one.rows) for one in first.shards],
        [(one.file, one.rows) for one in second.shards],
    )
    check = replace(check_untouched(honest).check, number=1)
    assert check.passed
    shown = (before or first, after or second)
    said, evidence = issued(
        (check,),
        "PASS",
        {
            "shards": "2",
            "shard2": f"{digest(b'three')} {digest(b'other')}",
            **(parameters or {}),
        },
        ROWS,
        {
            "details": {
                "shardsBefore": shown[0].to_bytes().decode(),
                "shardsAfter": shown[1].to_bytes().decode(),
            },
            **AGAIN,
            "statistics": statistics or {"before": shown[0].digest, "after": shown[1].digest},
        },
    )
    return recheck(said, RecheckFiles(evidence, (), model))


def test_the_shards_are_compared_again_from_the_evidence() -> None:
    found = shards()
    assert named(found, UNTOUCHED).status == "same"
    assert found.result == "DIGESTS-ONLY"


def other(place: int, **changes: str) -> ShardManifest:
    """Return the manifest after with one shard's entry changed."""
    made = manifest_of("mean", AFTER, LEFT)
    entries = list(made.shards)
    entries[place] = replace(entries[place], **changes)
    return replace(made, shards=tuple(entries))


@pytest.mark.parametrize(
    "changes",
    [
        {"after": other(0, file="f" * 64)},
        {"after": other(3, rows="f" * 64)},
        {"after": replace(other(0), shards=other(0).shards[:3])},
        {"parameters": {"shards": "1 2", "shard1": f"{digest(b'two')} {digest(b'two')}"}},
        {"parameters": {"shards": "0"}},
        {"parameters": {"shard2": f"{digest(b'three')} {digest(b'four')}"}},
        {"statistics": {"before": "0" * 64, "after": "0" * 64}},
    ],
    ids=[
        "a file",
        "its rows",
        "a shard less",
        "one more named",
        "another named",
        "its files",
        "manifest",
    ],
)
def test_shards_that_differ_are_found(changes: dict[str, Any]) -> None:
    assert UNTOUCHED in differing(shards(**changes))


def test_the_model_file_holds_the_shards_that_the_manifest_names() -> None:
    manifest = manifest_of("mean", AFTER, LEFT)
    honest = container.encode(manifest, AFTER)
    assert named(shards(model=honest), UNTOUCHED).status == "same"
    for wrong in (
        container.encode(manifest, [*AFTER[:3], b"five"]),
        container.encode(manifest_of("vote", AFTER, LEFT), AFTER),
        encode_tensors({"shard-000": np.zeros(1, np.uint8)}, manifest.document),
        b"none",
    ):
        assert UNTOUCHED in differing(shards(model=wrong))


def check_of(name: str, value: str) -> CheckPart:
    return CheckPart(1, name, "value", value, None, "equal", True)


def of(check: CheckPart, **files: Any) -> Recheck:
    """Recheck a certificate with one check."""
    said, evidence = issued((check,), "PASS", {"data": "rows"}, ROWS, {**AGAIN})
    model = files.get("model")
    if model is not None:
        published = replace(said.model, version_after=VersionPart(digest(model)))
        said = replace(said, model=published)
    return recheck(said, RecheckFiles(evidence, (), **files))


def index(records: list[str]) -> bytes:
    none = np.empty((0, 4), dtype=np.float32)
    options = VectorOptions("flat", "l2", 4, 1, none, 0, 0, 0, 0)
    vectors = np.arange(4 * len(records), dtype=np.float32).reshape(-1, 4)
    return vector_files.encode(build(options, records, vectors))


def test_an_index_is_searched_for_the_erased_ids() -> None:
    check = check_of("bytes-probe", "0 of 500 found in 4 files")
    found = named(of(check, model=index(["kept-1", "kept-2"])), "1 bytes-probe")
    assert found.status == "not recomputed"
    assert found.reason.startswith("none of 500 ids")
    erased = REMOVAL.records[7].record
    assert differing(of(check, model=index(["kept-1", erased]))) == {"1 bytes-probe"}
    assert differing(of(check, model=b"no index")) == {"1 bytes-probe"}
    assert "--model" in named(of(check), "1 bytes-probe").reason


def test_the_registration_is_hashed_again() -> None:
    pinned = {"config": {"sums": {"estimator": "gaussian-nb"}}, "classes": ["a"]}
    review = {"decide": "review", "cooling_off": 0}
    whole = {**pinned, **review, "method": "sums-exact", "extractor": {}}
    check = check_of("registration", f"sha256 {digest(canonical.encode(whole))}")
    answer = {**whole, "extractor": None, "ref": "m", "state": "ready"}
    assert named(of(check, registration=answer), "1 registration").status == "same"
    wrong = {**answer, "classes": ["a", "b"]}
    assert differing(of(check, registration=wrong)) == {"1 registration"}
    assert "--registration" in named(of(check), "1 registration").reason


@pytest.mark.parametrize(
    ("counts", "same"), [("505 - 500 = 5", True), ("505 - 499 = 6", False)]
)
def test_the_counts_of_the_retained_set_are_compared(counts: str, same: bool) -> None:
    found = of(check_of("retained-set", f"{counts} records"))
    assert ("1 retained-set" in differing(found)) == (not same)


def test_odd_details_are_a_line_and_no_error() -> None:
    for text in ("{", "[]", '{"shards": 3}', json.dumps({"shards": [1]})):
        said, evidence = issued(
            (check_of("untouched-shards", "3 of 4"),),
            "PASS",
            {"shards": "2"},
            ROWS,
            {
                "details": {"shardsBefore": text, "shardsAfter": text},
                **AGAIN,
                "statistics": {"before": digest(text.encode()), "after": digest(text.encode())},
            },
        )
        assert UNTOUCHED in differing(recheck(said, RecheckFiles(evidence, ())))


def test_a_check_that_is_listed_many_times_is_repeated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = json.dumps({"shards": []})
    evidence = {
        "details": {"shardsBefore": text, "shardsAfter": text},
        **AGAIN,
        "statistics": {"before": digest(text.encode()), "after": digest(text.encode())},
    }
    many = tuple(
        replace(check_of("untouched-shards", "0 of 0"), number=number) for number in range(1, 9)
    )
    said, file = issued(many, "PASS", {"shards": ""}, ROWS, evidence)
    repeated = []

    def counted(claim: ShardsClaim) -> Any:
        repeated.append(claim)
        return check_untouched(claim)

    monkeypatch.setattr("workers.judge.recheck.refitted.check_untouched", counted)
    found = recheck(said, RecheckFiles(file, ()))
    assert len(repeated) == 1
    assert len([line for line in found.lines if "untouched-shards" in line.name]) == 8
