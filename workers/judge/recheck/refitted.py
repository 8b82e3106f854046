"""Checks of models fitted in one go that need only evidence, model file and registration.

Nothing is fitted and no row is read. For shards, the manifests of both versions are compared as
by the judge, and the files of all shards are hashed; an index is searched for the erased ids.
Each manifest must have the digest that the evidence has for its version.
"""

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from lethe import canonical
from lethe.certificates.evidence import Evidence
from lethe.certificates.statement import CheckPart, Predicate
from workers.judge.recheck.files import PINNED, RecheckFiles
from workers.judge.recheck.lines import Line, compare, skipped
from workers.judge.refitted import ShardsClaim, check_untouched

ODD = (
    ArithmeticError,
    AttributeError,
    KeyError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
MANIFESTS = {"before": "shardsBefore", "after": "shardsAfter"}  # details of the report


def repeat(check: CheckPart, said: Predicate, given: RecheckFiles) -> Line | None:
    """Return the line of a check for which these files suffice, None for another."""
    again = REPEATED.get(check.name)
    if again is None or given.parsed is None:
        return None
    try:
        return again(f"{check.number} {check.name}", check, said, given)
    except ODD as error:
        found = f"what it is of cannot be read: {type(error).__name__}"
        return compare(f"{check.number} {check.name}", check.value, found)


def _untouched(name: str, check: CheckPart, said: Predicate, given: RecheckFiles) -> Line:
    evidence = given.parsed
    assert evidence is not None
    manifests = {side: _manifest(evidence, side) for side in MANIFESTS}
    named = [int(place) for place in said.method.parameters["shards"].split()]
    entries = {
        side: [(one["file"], one["rows"]) for one in manifest["shards"]]
        for side, manifest in manifests.items()
    }
    found = check_untouched(ShardsClaim(named, entries["before"], entries["after"])).check
    for place in named:
        pair = " ".join(entries[side][place][0] for side in MANIFESTS)
        if said.method.parameters[f"shard{place}"] != pair:
            return compare(name, check.value, f"shard {place} has other files in the manifests")
    again = compare(name, _verdict(check), _verdict(found))
    if again.status == "same" and given.model is not None:
        problem = _shard_problem(given.model, manifests["after"])
        return again if problem is None else compare(name, check.value, problem)
    return again


def _manifest(evidence: Evidence, side: str) -> Mapping[str, Any]:
    """Return a version's manifest.

    Raises ValueError if it is not the one that the version names.
    """
    text = evidence.report.details[MANIFESTS[side]]
    if sha256(text.encode()).hexdigest() != evidence.statistics[side]:
        raise ValueError("another manifest than the evidence names")
    found: Mapping[str, Any] = json.loads(text)
    return found


def _shard_problem(file: bytes, manifest: Mapping[str, Any]) -> str | None:
    from workers.arrays import decode_tensors
    from workers.errors import ArtifactError

    try:
        arrays, metadata = decode_tensors(file)
    except ArtifactError:
        return "the model file holds no shards"
    if metadata != manifest:
        return "the model file has another manifest than the evidence"
    for place, entry in enumerate(manifest["shards"]):
        if sha256(arrays[f"shard-{place:03}"].tobytes()).hexdigest() != entry["file"]:
            return f"shard {place} of the model file has another digest"
    return None


def _registration(name: str, check: CheckPart, said: Predicate, given: RecheckFiles) -> Line:
    if given.registration is None:
        return skipped(name, check.value, "give it with --registration")
    pinned = {one: given.registration[one] for one in PINNED}
    pinned["extractor"] = pinned["extractor"] or {}  # models of tables have none
    return compare(name, check.value, f"sha256 {sha256(canonical.encode(pinned)).hexdigest()}")


def _counted(name: str, check: CheckPart, said: Predicate, given: RecheckFiles) -> Line | None:
    """Compare the counts; the list of all commitments stays with the service."""
    kept = said.retained_set
    counts = f"{kept.before.count} - {said.scope.records} = {kept.after.count} records"
    if check.passed and check.value != counts:
        return compare(name, check.value, counts)
    return None


def _probed(name: str, check: CheckPart, said: Predicate, given: RecheckFiles) -> Line:
    """Search the model file for erased ids; the erased vectors were destroyed."""
    evidence = given.parsed
    assert evidence is not None
    if given.model is None:
        return skipped(name, check.value, "give the file with --model: it is searched for ids")
    ids = [one.record for one in evidence.removal.records]
    lines = set(_id_table(given.model))
    there = sum(one in lines for one in ids)
    if check.passed and there:
        return compare(name, check.value, f"{there} of {len(ids)} ids are in the model file")
    reason = f"none of {len(ids)} ids is in the model file; the erased vectors were destroyed"
    return skipped(name, check.value, reason)


def _id_table(file: bytes) -> list[str]:
    """Return the record ids that an index names. Raises ValueError if it is not an index."""
    from workers.arrays import decode_tensors
    from workers.errors import ArtifactError

    try:
        arrays, _ = decode_tensors(file)
    except ArtifactError:
        raise ValueError("no index") from None
    return arrays["ids"].tobytes().decode().split("\n")


def _verdict(check: CheckPart) -> str:
    return check.value if check.passed else f"{check.value}: not passed"


REPEATED: Mapping[str, Callable[[str, CheckPart, Predicate, RecheckFiles], Line | None]] = {
    "bytes-probe": _probed,
    "registration": _registration,
    "retained-set": _counted,
    "untouched-shards": _untouched,
}
