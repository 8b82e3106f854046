"""Erase: subtract claimed records, publish the next version, destroy what held them."""

from sqlalchemy import insert

from app.certificates.retained import record_commitment
from app.ledger.journal import record_request_event
from app.ledger.sequencer import Transaction
from app.service.context import Services
from app.service.scope import open_tombstone_key, record_tag
from app.steps import reached
from models import ErasureRequest, FeatureBlock, Model, Subject, Tombstone
from workers.errors import RefusedError
from workers.tasks import batch, draft, releasing, versions
from workers.tasks import before as before_statistics
from workers.tasks.asking import dropped_subjects
from workers.tasks.batch import Member
from workers.tasks.blocks import AnyBlock, decode_block, encode_block
from workers.tasks.draft import Draft, RewrittenBlock
from workers.tasks.lease import Lease, LeaseLostError, advance, follow
from workers.tasks.removal import AnswerError, owned_by_subject, remove
from workers.tasks.versions import RetainedSet


def run(services: Services, lease: Lease) -> None:
    """Remove a request's claimed records from its model, and those of requests like it.

    If the method declines the removal of all together, the leased request goes alone: what
    is wrong with one of them is not the fault of the others.

    Raises:
        RefusedError: The method declined; nothing was changed.
        LeaseLostError: Another worker holds the job now.
    """
    members = batch.collect(services, lease)
    if not members:  # parked: a client must answer first
        return
    assert lease.request_id is not None
    with services.reading() as session:
        # What goes with a block that a person decided to remove goes with it or not at all.
        together = bool(dropped_subjects(session, lease.request_id))
    if len(members) > 1 and not together:
        try:
            _execute(services, lease, members)
            return
        except RefusedError:
            members = members[:1]
    try:
        _execute(services, lease, members)
    except AnswerError as error:
        release = error.release
        services.ledger.transact(lambda tx: releasing.ask_anew(services, tx, lease, release))


def _execute(services: Services, lease: Lease, members: list[Member]) -> None:
    owned = owned_by_subject(members)
    with services.reading() as session:
        request = session.get_one(ErasureRequest, lease.request_id)
        model = session.get_one(Model, lease.model_id)
        config = versions.ridge_config(model)
        before = versions.current(session, model)
        assert before is not None
        state = versions.load_state(services, session, before)
        retained = versions.commitments(session, lease.model_id)
        blocks = {
            subject: decode_block(services.features.load(session, subject)) for subject in owned
        }
        method = versions.method_of(model, request.method)
        tombstone_key = open_tombstone_key(services.master, model)
        released = releasing.answers(services, session, members, config.bits)
        parameters = {**versions.parameters(config), "data": model.config["data"]}
        removal = remove(blocks, members, released, config)
        dropped = versions.commitments_of(session, lease.model_id, removal.dropped)
    outcome = method.forget(config, state, removal.batch)
    encoded = versions.encode(outcome.state, config)
    links = batch.prove(retained, members, dropped)
    tombstones = [
        {
            "model_id": lease.model_id,
            "tag": record_tag(tombstone_key, record),
            "request_id": member.request_id,
        }
        for member in members
        for record in member.salts
    ]
    tombstones += [
        {
            "model_id": lease.model_id,
            "tag": record_tag(tombstone_key, record),
            "request_id": lease.request_id,
        }
        for record in removal.dropped
    ]
    leaving = sorted({*removal.dropped, *(record for m in members for record in m.salts)})
    gone = {
        record_commitment(salt, record)
        for member in members
        for record, salt in member.salts.items()
    }
    gone |= set(dropped)
    after = RetainedSet.of([value for value in retained if value not in gone])
    parameters |= {**outcome.notes, "batch": str(len(members))}
    if dropped:
        parameters["dropped"] = str(len(dropped))
    reached("execute.computed")

    going: list[tuple[str, str]] = []

    def effect(tx: Transaction) -> None:
        session = tx.session
        model = session.get_one(Model, lease.model_id)
        if model.current_version != before.number:
            raise LeaseLostError(lease.job_id)
        rewritten = {
            subject_id: _rewrite(services, tx, subject_id, rest)
            for subject_id, rest in removal.rest.items()
        }
        session.flush()
        session.connection().execute(insert(Tombstone), tombstones)
        ids = [member.request_id for member in members]
        if versions.remove_records(session, lease.model_id, leaving) != len(leaving):
            raise LeaseLostError(lease.job_id)
        going.extend(releasing.settle(services, tx, ids, list(removal.rest)))
        roots = [link.root for link in links]
        if not dropped:
            roots.pop()  # it is the version's own
        version = versions.publish(services, tx, model, lease, encoded, after, roots)
        shredded = versions.withdraw_earlier(services, tx, model, version)
        before_id = before_statistics.keep(services, tx, state.statistics, config)
        drafts = []
        for member, link in zip(members, links, strict=True):
            plan = Draft(
                removal=link.removal,
                earlier=draft.write_commitments(link.earlier),
                later=draft.write_commitments(link.later),
                before_number=before.number,
                number=version.number,
                head_before=before.head_digest,
                statistics_before=before.statistics_digest,
                statistics_after=encoded.statistics,
                method=method.id,
                method_version=method.version,
                claim=outcome.claim,
                parameters=parameters | batch.gone_before(member),
                bounds={"head": repr(outcome.state.bound)},
                artifacts=shredded,
                blocks=[rewritten[subject] for subject in member.owned()],
                feature_rows=len(member.salts),
            )
            drafts.append(draft.store(services, session, plan))
        reached("execute.written")
        for member in members:
            request = session.get_one(ErasureRequest, member.request_id)
            request.state = "verifying"
            record_request_event(
                tx,
                request,
                "request.executed",
                {"head": encoded.head_digest, "statistics": encoded.statistics},
            )
        session.flush()
        for member, draft_id in zip(members[1:], drafts[1:], strict=True):
            values = {"draft_id": draft_id, "before_id": before_id}
            follow(tx, lease, member.job_id, member.token, "verify", **values)
        advance(tx, lease, "verify", draft_id=drafts[0], before_id=before_id)

    services.ledger.transact(effect)
    for job_id, stage in going:
        services.dispatcher.nudge(job_id, stage)


def _rewrite(
    services: Services, tx: Transaction, subject_id: int, rest: AnyBlock | None
) -> RewrittenBlock:
    subject = tx.session.get_one(Subject, subject_id)
    block = tx.session.get_one(FeatureBlock, subject_id)
    old = RewrittenBlock(
        subject_id, block.key_generation, draft.sha256_hex(bytes(block.ciphertext))
    )
    payload = None if rest is None else encode_block(rest)
    rows = 0 if rest is None else len(rest.records)
    services.features.rewrite(tx.session, subject, payload, rows)
    return old
