"""The targets of an audit, and the rows a pair is trained on: drawn by hashes of record ids.

The same stored records always give the same draw. An erased record drops out of the ranking
without moving any other: the audit continues without it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from workers.audit_pairs.ranks import first, purpose, rank_of
from workers.errors import RefusedError
from workers.methods.network.base import UnlearningRequest
from workers.training.fedavg.base import ClientData


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """One client's rows: records[i] is the id of row i of data, held[i] whether held out."""

    records: Sequence[str]
    data: ClientData
    held: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Plan:
    """The subject of an audit: `targets` records among `rows` others, in each of `pairs` pairs.

    mislabelled: the targets are learned with a wrong class, which no model can infer from other
    rows: the hardest records to forget.
    """

    seed: int
    pairs: int
    rows: int
    targets: int
    mislabelled: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """One pair's rows by client. learned: retained rows and targets; validation: held out."""

    learned: Mapping[str, ClientData]
    retained: Mapping[str, ClientData]
    targets: ClientData
    request: UnlearningRequest
    validation: ClientData


def draw(rows: Mapping[str, StoredRows], plan: Plan, pair: int, classes: int) -> Drawn:
    """Return the rows of pair number `pair`: the common targets, and other rows of its own.

    Raises RefusedError if there are too few rows, or none held out.
    """
    trained = {record for own in rows.values() for record in _of(own, held=False)}
    unseen = {record for own in rows.values() for record in _of(own, held=True)}
    chosen = first(purpose(plan.seed), trained, plan.targets)
    others = first(f"audit-rows|{plan.seed}|{pair}", trained - chosen, plan.rows)
    if len(chosen) + len(others) < plan.targets + plan.rows:
        raise RefusedError(
            f"the model has {len(trained)} training rows, and a pair needs "
            f"{plan.rows} rows and {plan.targets} targets: start an audit of fewer "
            "rows"
        )
    if not unseen:
        raise RefusedError(
            "no rows are held out: every erasure of this model is a retraining, and there is "
            "nothing to audit"
        )
    if plan.mislabelled:
        rows = {
            name: _mislabelled(own, chosen, plan.seed, classes) for name, own in rows.items()
        }
    validation = first(f"audit-judges|{plan.seed}|{pair}", unseen, plan.rows)
    return Drawn(
        learned=_only(rows, chosen | others),
        retained=_only(rows, others),
        targets=ClientData.joined([*_only(rows, chosen).values()]),
        request=_request(rows, chosen, others),
        validation=ClientData.joined([*_only(rows, validation).values()]),
    )


def _of(own: StoredRows, *, held: bool) -> list[str]:
    return [record for record, out in zip(own.records, own.held, strict=True) if out is held]


def _only(rows: Mapping[str, StoredRows], records: Collection[str]) -> dict[str, ClientData]:
    """Return these records' rows by client, in the order in which they are stored."""
    found = {}
    for name, own in sorted(rows.items()):
        mask = torch.tensor([record in records for record in own.records], dtype=torch.bool)
        if bool(mask.any()):
            found[name] = own.data.only(mask)
    return found


def _request(
    rows: Mapping[str, StoredRows], chosen: Collection[str], others: Collection[str]
) -> UnlearningRequest:
    """Return the request for the targets; for a client without other rows, for all of it."""
    whole: set[str] = set()
    some: dict[str, tuple[int, ...]] = {}
    for name, own in rows.items():
        learned = [record for record in own.records if record in chosen or record in others]
        places = tuple(place for place, record in enumerate(learned) if record in chosen)
        if places and len(places) == len(learned):
            whole.add(name)
        elif places:
            some[name] = places
    return UnlearningRequest(frozenset(whole), some)


def _mislabelled(
    own: StoredRows, chosen: Collection[str], seed: int, classes: int
) -> StoredRows:
    labels = own.data.targets.clone()
    for place, record in enumerate(own.records):
        if record in chosen:
            drawn = int.from_bytes(rank_of(f"audit-label|{seed}", record)[:8], "big")
            labels[place] = (int(labels[place]) + 1 + drawn % (classes - 1)) % classes
    return StoredRows(own.records, ClientData(own.data.inputs, labels), own.held)
