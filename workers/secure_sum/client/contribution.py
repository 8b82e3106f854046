"""A member's input to a round: sums of the rows it adds, less those it releases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from lethe import canonical
from workers.errors import RefusedError
from workers.methods.ridge.statistics.message import summarise
from workers.secure_sum.errors import PlanError
from workers.secure_sum.local import LocalRows, check_description, quantise
from workers.secure_sum.plan import RoundPlan
from workers.secure_sum.vector import Sums, Vector, to_vector


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """The vector, (record, subject) of the added rows, and the released records.

    people: by kind, the concatenated identity digests of the added records.
    """

    vector: Vector
    adds: tuple[tuple[str, str], ...]
    releases: tuple[str, ...]
    people: Mapping[str, bytes]


def check_manifest(plan: RoundPlan, manifest: Mapping[str, Any]) -> None:
    """Return if a plan matches the model that a manifest describes.

    Members that agree on the plan use the same steps, classes, extractor and order of features.

    Raises PlanError if it is for another model; RefusedError if it describes none.
    """
    check_description(manifest)
    used = {
        name: manifest[name] for name in ("bits", "classes", "exponents", "extractor", "ref")
    }
    if manifest.get("features"):
        used["features"] = manifest["features"]
    digest = sha256(canonical.encode(used)).hexdigest()
    shape = (len(manifest["exponents"]), len(manifest["classes"]))
    if digest != plan.configuration or shape != (plan.dimension, plan.classes):
        raise PlanError("the round's plan is about another configuration than the manifest's")


def contribute(
    rows: LocalRows,
    manifest: Mapping[str, Any],
    *,
    held: Sequence[str],
    release: Sequence[str],
    add: bool,
) -> Contribution:
    """Return the member's input to the round.

    Args:
        rows: All rows of this member, including those to be released.
        manifest: The model's manifest.
        held: Records that this member added before, by its own record.
        release: Those of them that the round asks it to release.
        add: Whether to add the rows not added before.

    Raises:
        RefusedError: A record to be released is not among the rows, or they do not fit the
            model.
    """
    if len(set(rows.clients)) != 1:
        raise RefusedError("the data holds rows of several clients: a member brings its own")
    place = {record: position for position, record in enumerate(rows.records)}
    missing = sum(record not in place for record in release)
    if missing:
        raise RefusedError(
            f"{missing} of {len(release)} records to be released are not in the data: give all "
            "rows that were contributed"
        )
    known = {*held, *release}
    fresh = [record for record in rows.records if record not in known] if add else []
    added = _sums(rows, [place[record] for record in fresh], manifest)
    removed = _sums(rows, [place[record] for record in release], manifest)
    vector = to_vector(added) - to_vector(removed)  # modulo 2^64, like everything that follows
    adds = tuple((record, rows.subjects[place[record]]) for record in fresh)
    chosen = [place[record] for record in fresh]
    people = {kind: column[chosen].tobytes() for kind, column in rows.identities.items()}
    return Contribution(vector, adds, tuple(release), people if fresh else {})


def _sums(rows: LocalRows, chosen: list[int], manifest: Mapping[str, Any]) -> Sums:
    d, c = len(manifest["exponents"]), len(manifest["classes"])
    if not chosen:
        zeros = (np.zeros(shape, dtype=np.int64) for shape in ((d, d), (d, c), (c,)))
        gram, moment, counts = zeros
        return Sums(gram, moment, counts, 0)
    codes = quantise(rows, chosen, manifest)
    message = summarise(codes, d, c, bits=int(manifest["bits"]))
    statistics = message.statistics
    return Sums(statistics.gram, statistics.moment, message.counts, statistics.rows)
