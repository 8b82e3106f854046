"""Removal proofs, their vectors and every changed part, by both verifiers."""

from collections.abc import Iterator
from typing import Any

import pytest

from lethe.canonical import format_base64
from tests.lethe.certificates import test_retained, test_retained_tree
from tests.lethe.certificates.test_retained import *  # noqa: F403
from tests.lethe.certificates.test_retained import check_removal
from tests.lethe.log.vectors import read_cases
from tests.lethe.web.second import ask, both, needs_node

pytestmark = needs_node


def check_in_javascript(
    section: Any,
    before_root: bytes,
    before_count: int,
    after_root: bytes,
    after_count: int,
    records: int,
    records_root: bytes,
) -> None:
    ask(
        "removal",
        section=section,
        before={"root": format_base64(before_root), "count": str(before_count)},
        after={"root": format_base64(after_root), "count": str(after_count)},
        records=str(records),
        recordsRoot=format_base64(records_root),
    )


@pytest.fixture(autouse=True, scope="module")
def _second() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_retained, "check_removal", both(check_removal, check_in_javascript))
        yield


@pytest.mark.parametrize(
    "case", read_cases(test_retained_tree.VECTORS / "roots"), ids=lambda case: case["name"]
)
def test_the_tree_of_the_vectors(case: Any) -> None:
    def build(leaves: list[tuple[str, str]], bit: int) -> tuple[str, int]:
        """The tree of docs/certificate.md, of hashes by the second verifier."""
        if len(leaves) == 1:
            commitment, content = leaves[0]
            return ask("retainedLeaf", commitment=commitment, content=content), 1
        sides: tuple[list[tuple[str, str]], ...] = ([], [])
        for leaf in leaves:
            sides[int(leaf[0], 16) >> (255 - bit) & 1].append(leaf)
        if not all(sides):
            return build(leaves, bit + 1)
        (left, few), (right, more) = (build(side, bit + 1) for side in sides)
        count = few + more
        return ask("retainedNode", bit=bit, count=count, left=left, right=right), count

    if case["leaves"]:  # the root of an empty set is in the removals' vectors
        root, count = build([(first, second) for first, second in case["leaves"]], 0)
        assert (root, count) == (case["root"], len(case["leaves"]))
