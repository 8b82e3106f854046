"""Scores of a silo's clients for two models, computed where the rows can be read.

Without silos the judge computes them, otherwise each silo for its clients. A client's rows are
scored in batches of their own, so that both give the same bits. The registered canary is scored
beside them: one client's rows, and the claim of all clients.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sqlmodel import Session, select

from app.service.context import Services
from lethe.certificates.evidence import record_commitment
from models import Model, Subject
from workers.arrays import Labels, Matrix
from workers.families.network.config import NetworkConfig, network_config
from workers.families.network.data import before as network_before
from workers.families.network.data.rows import (
    ClientRows,
    RowDigestParts,
    assemble,
    client_of,
    digests_of,
)
from workers.judge.samples.canary import CanaryClaim
from workers.lineage.versions import salts_of
from workers.silos.canary_scores import ClientCanary
from workers.silos.engine import silo_of
from workers.silos.score_task import ScoreTask
from workers.silos.scores import ClientScores, SiloScores
from workers.training.fedavg.base import ClientData
from workers.training.replay.canary import Canary
from workers.training.replay.models import Scorer, scorer


def client_canary(
    canary: Canary,
    pool: ClientData | None,
    targets: ClientData | None,
    retained: ClientData | None,
    models: tuple[Scorer, Scorer],
    classes: int,
) -> ClientCanary:
    """Return one client's scores of the canary: logits of its stamped pool, planted rows.

    pool: its held-out rows, stored ones first; targets, retained: its training rows.
    """
    logits: list[Matrix] = [np.zeros((0, classes))] * len(models)
    if pool is not None:
        stamped = canary.stamped(pool)
        logits = [model(stamped) for model in models]
    planted = [0 if rows is None else canary.planted(rows) for rows in (targets, retained)]
    return ClientCanary(logits[0], logits[1], *planted)


def canary_claim(
    canary: Canary | None, clients: Sequence[ClientScores], classes: int
) -> CanaryClaim | None:
    """Return the claim of all clients, in the order of a claim's pool: unseen rows, then held.

    Rows of the target's own class are left out. None without a canary.
    """
    if canary is None:
        return None
    stamped = [(one, one.canary) for one in clients if one.canary is not None]
    parts: dict[str, list[Matrix]] = {
        side: [np.zeros((0, classes))] for side in ("before", "after")
    }
    for group in ("unseen", "held"):
        for scores, own in stamped:
            held = len(scores.held)
            place = slice(0, held) if group == "held" else slice(held, None)
            other = scores.labels[scores.rows_of(group)] != canary.target
            for side, found in parts.items():
                found.append(getattr(own, side)[place][other])
    return CanaryClaim(
        canary.target,
        np.concatenate(parts["before"]),
        np.concatenate(parts["after"]),
        leaving=sum(own.leaving for _, own in stamped),
        staying=sum(own.staying for _, own in stamped),
    )


UNKNOWN = bytes(32)  # the commitment of a row of an unknown record: matches nothing


def score(services: Services, task: ScoreTask) -> tuple[SiloScores, int]:
    """Return the scores of a silo's clients for a task's models, and the number of classes.

    Raises LetheError for destroyed data, ModelError for rows or files that do not belong to the
    network.
    """
    with services.reading() as session:
        config = network_config(session.get_one(Model, task.model_id))
        before = network_before.decode(services.artifacts.get(session, task.before))
        published = services.artifacts.get(session, task.published)
        gone = dict(zip(before.records, before.salts, strict=True))
        salted = Salts(salts_of(session, task.model_id), gone)
        mine = _clients(session, task)
        stored = {
            client: client_of([one.block for one in held], config)
            for client in mine
            if (held := assemble(services, session, task.model_id, client=client))
        }
    went = before.holdings(config.is_held_out)
    found = hashlib.sha256(before.model).hexdigest(), hashlib.sha256(published).hexdigest()
    models = scorer(before.model, config.network), scorer(published, config.network)
    clients = [
        _client(Own(one, stored.get(one), went.get(one)), salted, task, config, models)
        for one in sorted({*stored, *_of_silo(went, task)})
    ]
    # By digests: the order of names would reveal more than their number.
    clients.sort(key=lambda one: sorted(one.digests()))
    return SiloScores(found, clients), config.network.classes


@dataclass(frozen=True, slots=True)
class Salts:
    """Salts by record: of the stored records, and of the erased ones, kept for the judge."""

    stored: Mapping[str, bytes]
    went: Mapping[str, bytes]

    def commitment(self, record: str) -> bytes:
        """Return a stored row's commitment, even if its record should be erased."""
        salt = self.stored.get(record, self.went.get(record))
        return UNKNOWN if salt is None else record_commitment(salt, record)


@dataclass(frozen=True, slots=True, eq=False)
class Own:
    """A client's stored and erased rows."""

    client: str
    stored: ClientRows | None
    went: ClientRows | None


def _clients(session: Session, task: ScoreTask) -> list[str]:
    query = select(Subject.client).where(Subject.model_id == task.model_id)
    # None: an erased client, which has no rows
    return _of_silo(sorted({name for name in session.exec(query) if name is not None}), task)


def _of_silo(clients: Iterable[str], task: ScoreTask) -> list[str]:
    return [client for client in clients if silo_of(client, task.silos) == task.silo]


def _client(
    own: Own,
    salted: Salts,
    task: ScoreTask,
    config: NetworkConfig,
    models: tuple[Scorer, Scorer],
) -> ClientScores:
    kept = [] if own.stored is None else list(own.stored.records)
    commitments = {record: salted.commitment(record) for record in kept}
    training = [record for record in kept if not config.is_held_out(record)]
    held = [record for record in kept if config.is_held_out(record)]
    sampled = [record for record in training if task.is_sampled(commitments[record])]
    removed = [] if own.went is None else list(own.went.records)
    wanted = set(task.own)
    own_request = {r for r in removed if record_commitment(salted.went[r], r).hex() in wanted}
    groups: dict[str, list[str]] = {"forget": [], "unseen": [], "other": []}
    for record in removed:
        group = "unseen" if config.is_held_out(record) else "forget"
        groups[group if record in own_request else "other"].append(record)
    there = _digests(own.client, own.stored, salted.stored)
    went = _digests(own.client, own.went, salted.went)
    rows = _rows(
        (own.stored, held),
        (own.went, groups["forget"]),
        (own.went, groups["unseen"]),
        (own.stored, sampled),
    )
    labels: Labels = np.zeros(0, dtype=np.int64)
    logits = [np.zeros((0, config.network.classes))] * len(models)
    if rows is not None and config.network.task == "classification":
        # None of the attacks reads masks.
        labels, logits = rows.targets.numpy(), [model(rows) for model in models]
    stamped = None
    if config.canary is not None:
        pool = _rows((own.stored, held), (own.went, groups["unseen"]))
        targets, retained = _rows((own.went, groups["forget"])), _rows((own.stored, training))
        classes = config.network.classes
        stamped = client_canary(config.canary, pool, targets, retained, models, classes)
    scored = [there[record].inputs for record in held]
    scored += [went[record].inputs for record in [*groups["forget"], *groups["unseen"]]]
    scored += [there[record].inputs for record in sampled]
    return ClientScores(
        training=tuple(there[record].row for record in training),
        held=tuple(there[record].row for record in held),
        own=tuple(
            record_commitment(salted.went[record], record)
            for record in [*groups["forget"], *groups["unseen"]]
        ),
        inputs=tuple(scored) if len(labels) else (),
        commitments=tuple(commitments[record] for record in [*training, *held]),
        labels=labels,
        before=logits[0],
        after=logits[1],
        canary=stamped,
        **{
            name: tuple(went[record].row for record in records)
            for name, records in groups.items()
        },
    )


def _digests(
    client: str, rows: ClientRows | None, salted: Mapping[str, bytes]
) -> dict[str, RowDigestParts]:
    return {} if rows is None else digests_of(client, rows, salted)


def _rows(*parts: tuple[ClientRows | None, Sequence[str]]) -> ClientData | None:
    """Return some records' rows, concatenated, None if there are none."""
    found = []
    for rows, records in parts:
        if rows is not None and records:
            places = {record: place for place, record in enumerate(rows.records)}
            chosen = torch.tensor([places[record] for record in records], dtype=torch.int64)
            found.append(rows.data.only(chosen))
    return ClientData.joined(found) if found else None
