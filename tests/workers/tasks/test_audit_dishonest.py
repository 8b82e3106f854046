"""Audit probes: dishonest provider, networks."""
import json
from dataclasses import replace
from typing import Any
import numpy as np, pytest, torch
from sqlmodel import Session, select
from models import *
from models import Artifact, Model, Verification, Certificate, ErasureRequest, Job
from tests import small_network
from tests.installation import Installation
from tests.workers.tasks import networks
from workers.tasks import network_update as nu, network_training as nt, network_case, network_before, erase, repair, checkpoints, versions, before as before_mod, certify
from workers.tasks.input_blocks import InputBlock
from workers.networks.files import decode_weights, encode_weights, digest_of
from workers.tasks.network_state import TrainingState, decode_state, encode_state
from workers.tasks.versions import Encoded

sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

def outcome(inst, rid, tag=""):
    r = networks.request(inst, rid)
    ev = networks.events(inst, rid)
    with Session(inst.services.engine) as s:
        v = s.get(Verification, rid)
        fails = [] if v is None else [(c["number"], c["name"], c["value"]) for c in v.report["checks"] if not c["passed"]]
        res = None if v is None else v.result
        cert = s.get(Certificate, rid)
        job = s.exec(select(Job).where(Job.request_id == rid)).one()
        left = sorted(a.kind for a in s.exec(select(Artifact)).all() if a.wrapped_key is not None)
        je = (job.stage, job.rung, job.attempt, job.error)
    g = networks.statement(inst, rid).predicate.guarantee.class_ if cert else None
    print(f"\n### {tag}: state={r.state} reason={r.reason}\n    events={ev}\n    result={res} fails={fails}\n    guarantee={g} job={je} model={networks.model(inst).state} artifacts={left}")
    return r.state, g

def watch_climb(mp):
    orig = repair.climb
    def climb(services, tx, lease, v):
        print("\n    CLIMB", v.result, [(c["number"], c["name"], c["value"]) for c in v.report["checks"] if not c["passed"]])
        return orig(services, tx, lease, v)
    mp.setattr(repair, "climb", climb)

def made_cheat(mp, change):
    """change(encoded, weights, state)->(weights, state)"""
    orig = nt.encoded
    def encoded(config, weights, state):
        w, s = change(config, dict(weights), state)
        return orig(config, w, s)
    mp.setattr(nt, "encoded", encoded)
    mp.setattr(nu, "encoded", encoded)

def ulp(mp):
    def ch(c, w, s):
        k = sorted(w)[0]; t = w[k].clone(); t.view(-1)[0] = torch.nextafter(t.view(-1)[0], torch.tensor(float("inf"))); w[k]=t
        return w, s
    made_cheat(mp, ch)
def keep_one(mp):
    orig = nu.retrained
    def r(services, lease, config, rows, salted, leaving=(), escalated=None):
        return orig(services, lease, config, rows, salted, set(sorted(leaving)[1:]) if leaving else leaving, escalated)
    mp.setattr(nu, "retrained", r)
def rounds_off(n):
    def f(mp):
        orig = nt.retraining
        def r(network, side, config, start, **k):
            return orig(network, side, replace(config, rounds=config.rounds+n), start, **k)
        mp.setattr(nt, "retraining", r)
    f.__name__ = f"rounds{n:+d}"
    return f
def wrong_start(mp):
    orig = nt.initial_weights
    mp.setattr(nt, "initial_weights", lambda n, s: orig(n, s+1))
def wrong_start_hidden(mp):
    orig = nt.initial_weights
    def r(network, side, config, start, **k):
        return nt_retr(network, side, config, orig(network, config.seed+1), **k)
    nt_retr = nt.retraining
    mp.setattr(nt, "retraining", r)
def all_missing(mp):
    from workers.networks.weights import initial_weights
    def ch(c, w, s):
        clients = [f"c{i}" for i in range(4)]
        miss = tuple((r, cl) for r in range(1, c.training.rounds+1) for cl in clients)
        return dict(initial_weights(c.network, c.training.seed)), replace(s, missing=miss)
    made_cheat(mp, ch)
def rows_kept(mp):
    mp.setattr(InputBlock, "without", lambda self, erased: self)
def digest_other(mp):
    mp.setattr(nt, "rows_digest", lambda rows, salted, gone=(): "ab"*32)
def bad_state(mp):
    mp.setattr(nt, "encode_state", lambda s: b"{}")
def one_missing(mp):
    def ch(c, w, s):
        return w, replace(s, missing=((1, "c0"),))
    made_cheat(mp, ch)
def no_shred(mp):
    from workers.tasks.draft import ShreddedArtifact
    mp.setattr(versions, "shred", lambda services, session, aid: ShreddedArtifact(aid, "0"*64))

CASES = [ulp, keep_one, rounds_off(1), rounds_off(-1), wrong_start, wrong_start_hidden, all_missing, rows_kept, digest_other, bad_state, one_missing, no_shred]
@sqlite
@pytest.mark.parametrize("cheat", CASES, ids=lambda c: c.__name__)
def test_retrain(installation, monkeypatch, cheat):
    networks.register(installation)
    watch_climb(monkeypatch)
    cheat(monkeypatch)
    rid = networks.erase(installation, networks.some("r0", "r1"), method="retrain")
    outcome(installation, rid, cheat.__name__)

@sqlite
@pytest.mark.parametrize("kind", ["checkpoint", "before"])
def test_not_shredded(installation, monkeypatch, kind):
    networks.register(installation)
    watch_climb(monkeypatch)
    if kind == "checkpoint":
        monkeypatch.setattr(checkpoints, "let_go", lambda *a: None)
        monkeypatch.setattr(erase.checkpoints, "let_go", lambda *a: None)
    else:
        monkeypatch.setattr(certify, "let_go", lambda *a: None)
    rid = networks.erase(installation, networks.some("r0", "r1"), method="retrain")
    outcome(installation, rid, kind)

@sqlite
@pytest.mark.parametrize("kind", ["republish", "nan", "othernet", "garbage"])
def test_approx_file(installation, monkeypatch, kind):
    networks.register(installation)
    watch_climb(monkeypatch)
    orig = nu.encoded
    old = networks.published(installation)
    def encoded(config, weights, state):
        e = orig(config, weights, state)
        if kind == "republish": return Encoded(head=old, state=e.state, statistics=e.statistics)
        if kind == "nan":
            # valid file with NaN bits
            import numpy as np
            b = bytearray(e.head); b[-4:] = np.float32(np.nan).tobytes()
            return Encoded(head=bytes(b), state=e.state, statistics=e.statistics)
        if kind == "garbage": return Encoded(head=b"x"*100, state=e.state, statistics=e.statistics)
        from workers.networks.registry import network
        from workers.networks.weights import initial_weights
        n = network("logistic", {"features": 6, "classes": 4})
        return Encoded(head=encode_weights(n.id, n.parameters, initial_weights(n, 1)), state=e.state, statistics=e.statistics)
    monkeypatch.setattr(nu, "encoded", encoded)
    rid = networks.erase(installation, networks.some(*[f"r{i}" for i in range(0,40)]), method="puf-special")
    monkeypatch.undo()
    for _ in range(3):
        installation.recover()
    outcome(installation, rid, kind)
