"""Scores through the service: kept for each judgement, named, served, and judged again."""

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from sqlmodel import Session, select

from lethe.certificates.evidence import parse_evidence
from lethe.held_out import is_held_out
from models import Record, RequestEvent
from tests import small_network
from tests.installation import Installation
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.families.network.rechecking import download, rechecked
from workers.judge.scores.file import decode_scores
from workers.judge.scores.order import problem_with
from workers.training.fedavg.base import ClientData
from workers.training.networks.registry import network
from workers.training.replay.models import scorer

METHOD, CLIENT = "puf-special", "c1"


def digests(installation: Installation, evidence: bytes) -> dict[bytes, int]:
    """Return the index of each row by its salted digest, computed from the arrays alone."""
    rows = small_network.rows()
    with Session(installation.services.engine) as session:
        query = select(Record.record, Record.salt)
        salts = {record: bytes(salt) for record, salt in session.exec(query)}
    salts |= {gone.record: gone.salt for gone in parse_evidence(evidence).removal.records}
    found = {}
    for place, record in enumerate(rows["records"].tolist()):
        client = rows["clients"][place].item()
        flag = b"held-out" if is_held_out(7, 0.25, record) else b"trained"
        whose = sha256(client.encode()).digest()
        inputs = sha256(salts[record] + whose + rows["inputs"][place].tobytes()).digest()
        row = sha256(inputs + salts[record] + sha256(record.encode()).digest())
        row.update(flag + rows["labels"][place].tobytes())
        found[row.digest()] = place
    return found


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_from_a_request_over_the_escalate_to_a_second_verdict(
    installation: Installation, tmp_path: Path
) -> None:
    networks.register(installation)
    request_id = networks.erase(installation, networks.whole(CLIENT), method=METHOD)
    said = download(installation, request_id, tmp_path).predicate
    assert [part.name for part in said.evidence] == ["erasure-evidence", "escalation.scores"]
    # The log's event of the judgement commits to them, and to none for the retraining.
    with Session(installation.services.engine) as session:
        query = select(RequestEvent.payload).where(RequestEvent.event == "request.verified")
        logged = [payload.get("scores") for payload in session.exec(query)]
    assert logged == [said.evidence[1].digest, None]

    (tmp_path / "model").write_bytes(networks.published(installation))
    given = [
        "--scores",
        str(tmp_path / "escalation.scores"),
        "--model",
        str(tmp_path / "model"),
    ]
    found = rechecked(tmp_path, *given)
    assert found["result"] == "DIGESTS-ONLY"
    lines = {line["name"]: line for line in found["lines"]}
    for name in ("escalation.scores file", "removal proof", "model file", "attempt 1"):
        assert lines[name]["status"] == "same", lines[name]
    assert "INCONCLUSIVE (samples: " in lines["attempt 1"]["recomputed"]
    assert "not recomputed" in {line["status"] for line in found["lines"]}

    data = (tmp_path / "escalation.scores").read_bytes()
    scores_are_of_their_rows(installation, data, (tmp_path / "e.json").read_bytes())
    nothing_of_a_person_is_in(data)


def scores_are_of_their_rows(installation: Installation, data: bytes, evidence: bytes) -> None:
    """Rescore each row, with models made without the service."""
    claim, tied = decode_scores(data)
    assert problem_with(claim, tied) is None
    assert tied.after == networks.versions(installation)[-1].statistics_digest
    assert tied.before == networks.versions(installation)[0].statistics_digest
    places, rows = digests(installation, evidence), small_network.rows()
    before = networks.retrained(rows, set())
    after = networks.forgotten(rows, before, METHOD, CLIENT)
    every = ClientData(torch.from_numpy(rows["inputs"]), torch.from_numpy(rows["labels"]))
    named = network("logistic", small_network.SHAPE)
    wanted = {"before": scorer(before, named)(every), "after": scorer(after, named)(every)}
    clients: dict[str, set[int]] = {}
    for side in ("forget", "pool", "retained"):
        own = [places[digest] for digest in getattr(tied, side)]
        assert own
        assert getattr(claim, f"{side}_labels").tolist() == rows["labels"][own].tolist()
        for time, logits in wanted.items():
            assert np.allclose(getattr(claim, f"{side}_{time}"), logits[own], atol=1e-5)
        if side != "retained":
            for number, place in zip(getattr(claim, f"{side}_clients"), own, strict=True):
                clients.setdefault(rows["clients"][place].item(), set()).add(int(number))
    assert {rows["clients"][places[digest]] for digest in tied.forget} == {CLIENT}
    assert sorted(number for own in clients.values() for number in own) == [0, 1, 2, 3]


def nothing_of_a_person_is_in(data: bytes) -> None:
    """Search for ids, names and rows in every possible encoding."""
    rows = small_network.rows()
    header = data[: 8 + int.from_bytes(data[:8], "little")]
    for word in {*rows["records"].tolist(), *rows["clients"].tolist()}:
        assert f'"{word}"'.encode() not in header
        for kind in ("utf-8", "utf-16-le", "utf-32-le"):
            text = word.encode(kind)
            assert len(text) < 6 or text not in data
    for row in rows["inputs"]:
        for kind in ("<f4", "<f8"):
            assert row.astype(kind).tobytes() not in data
            assert row.astype(kind)[:2].tobytes() not in data


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_only_operators_and_auditors_get_scores(installation: Installation) -> None:
    with Session(installation.services.engine) as session:
        kept = installation.services.artifacts.put(session, "scores", b"scores")
        other = installation.services.artifacts.put(session, "draft", b"draft")
        artifact_id, *names = kept.id, kept.digest, other.digest
        session.commit()
    http, caller = installation.caller.http, installation.caller
    assert http.get(f"/v1/scores/{names[0]}").status_code == 401
    assert caller.operator("GET", f"/v1/scores/{names[0]}").content == b"scores"
    # No other sealed file can be downloaded by its digest.
    assert caller.operator("GET", f"/v1/scores/{names[1]}").status_code == 404
    assert caller.operator("GET", "/v1/scores/0").status_code == 422
    with Session(installation.services.engine) as session:
        installation.services.artifacts.shred(session, artifact_id)
        session.commit()
    assert caller.operator("GET", f"/v1/scores/{names[0]}").status_code == 410


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_of_a_ridge_head_only_digests_can_be_checked(
    ready: Installation, tmp_path: Path
) -> None:
    request_id = ready.caller.erase_records("r1", "r2").json()["id"]
    ready.drain()
    said = download(ready, request_id, tmp_path).predicate
    assert len(said.evidence) == 1
    found = rechecked(tmp_path)
    assert found["result"] == "DIGESTS-ONLY"
    lines = {line["name"]: line for line in found["lines"]}
    assert lines["removal proof"]["status"] == "same"
    reasons = [lines[f"{check.number} {check.name}"]["reason"] for check in said.checks]
    assert all(reasons)
    # The digest of the statistics that check 1 names is the evidence's, or this were red.
    after = json.loads((tmp_path / "e.json").read_bytes())["statistics"]["after"]
    assert said.checks[0].value == after["sha256"]
