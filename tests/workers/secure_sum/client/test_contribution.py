"""A member's input: sums of rows against Python's own integers, and refusals."""

from dataclasses import replace
from typing import Any

import pytest

from tests.remote import local_rows
from tests.small import CLASSES, DIMENSION, manifest
from workers.errors import RefusedError
from workers.secure_sum.client.contribution import check_manifest, contribute
from workers.secure_sum.errors import PlanError
from workers.secure_sum.local import LocalRows, quantise
from workers.secure_sum.plan import RoundPlan
from workers.secure_sum.vector import from_vector


def own(client: str = "c1") -> LocalRows:
    rows = local_rows()
    keep = [i for i, name in enumerate(rows.clients) if name == client]
    return LocalRows(
        rows.features[keep],
        rows.labels[keep],
        [client] * len(keep),
        [rows.records[i] for i in keep],
        ["s"] * len(keep),
    )


def test_adds_less_releases_entry_by_entry() -> None:
    rows = own()
    held, release = rows.records[:3], rows.records[1:2]
    found = contribute(rows, manifest(), held=held, release=release, add=True)
    assert found.adds == tuple((record, "s") for record in rows.records[3:])
    assert found.releases == tuple(release)
    codes = quantise(rows, list(range(len(rows.records))), manifest())
    signs = [0, -1, 0, *[1] * (len(rows.records) - 3)]
    sums = from_vector(found.vector, DIMENSION, CLASSES)
    for i in range(DIMENSION):
        for j in range(DIMENSION):
            products = (int(a) * int(b) for a, b in codes.codes[:, [i, j]])
            assert sums.gram[i, j] == sum(s * p for s, p in zip(signs, products, strict=True))
        for label in range(CLASSES):
            values = [
                sign * int(code)
                for sign, code, mine in zip(signs, codes.codes[:, i], codes.labels, strict=True)
                if mine == label
            ]
            assert sums.moment[i, label] == sum(values)
    assert sums.rows == sum(signs) == sums.counts.sum()


def test_who_brings_nothing_brings_zeros() -> None:
    rows = own()
    found = contribute(rows, manifest(), held=rows.records, release=[], add=True)
    assert (found.adds, found.releases) == ((), ())
    assert not found.vector.any()


def test_who_only_releases_adds_nothing() -> None:
    rows = own()
    found = contribute(rows, manifest(), held=[], release=[], add=False)
    assert not found.vector.any()


def test_a_release_of_rows_that_are_not_there() -> None:
    with pytest.raises(RefusedError, match="1 of 2 records to be released are not in the data"):
        contribute(own(), manifest(), held=[], release=["r1", "r2"], add=True)


def test_rows_of_several_clients() -> None:
    with pytest.raises(RefusedError, match="several clients"):
        contribute(local_rows(), manifest(), held=[], release=[], add=True)


def plan(described: dict[str, Any]) -> RoundPlan:
    from hashlib import sha256

    from lethe import canonical

    names = ("bits", "classes", "exponents", "extractor", "ref")
    used = {name: described[name] for name in names}
    return RoundPlan(
        "00000000-0000-4000-8000-000000000001",
        "small",
        sha256(canonical.encode(used)).hexdigest(),
        0,
        DIMENSION,
        CLASSES,
        ("a", "b"),
        2,
        1,
        1,
    )


OTHERS: dict[str, dict[str, Any]] = {
    "steps": {"exponents": [-11] * DIMENSION},
    "bits": {"bits": 12},
    "classes": {"classes": ["x", "y", "z"]},
    "extractor": {"extractor": {"id": "identity", "digest": "1" * 64}},
    "model": {"ref": "other"},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
def test_a_plan_about_another_configuration(change: dict[str, Any]) -> None:
    described = manifest()
    check_manifest(plan(described), described)
    with pytest.raises(PlanError):
        check_manifest(plan(described), {**described, **change})


def test_a_plan_of_another_shape() -> None:
    described = manifest()
    with pytest.raises(PlanError):
        check_manifest(replace(plan(described), dimension=7), described)
