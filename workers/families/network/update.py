"""Deep models: learn an upload, forget records."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import TESTED
from models import ErasureRequest, Model, ModelVersion
from workers.families.network import attempt
from workers.families.network.certified import GIVES_WAY, carry_out, check_rows, load_terms
from workers.families.network.config import NetworkConfig, network_config
from workers.families.network.data import before as network_before
from workers.families.network.data.blocks import InputBlock
from workers.families.network.data.rows import (
    Holdings,
    assemble,
    by_owner,
    holdings,
    row_digests,
)
from workers.families.network.data.sides import divide, validation
from workers.families.network.training import (
    RETRAIN,
    approximated,
    data_of,
    device_of,
    forget_side,
    gave_way,
    out_of_memory_named,
    repeat,
    resumed,
    retain_side,
    retrained,
)
from workers.families.network.wording import EMPIRICAL
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember, owned_by_subject
from workers.lineage.logged import require_rows
from workers.lineage.versions import salts_of
from workers.methods.network.base import UnlearningCase
from workers.methods.network.registry import WITHOUT_A_MODEL
from workers.training.networks.weights import decode_weights, digest_of
from workers.updates.update import ParsedUpload, Update, UpdateResult, split


def read(model: Model, upload: BinaryIO) -> ParsedUpload:
    """Parse an upload. Raises RefusedError if it cannot be learned."""
    config = network_config(model)
    blocks = by_owner(upload)
    check_rows(config, (block.inputs for block in blocks.values()))
    return ParsedUpload(blocks, saturated=0)


def learn(
    job: JobContext,
    before: ModelVersion | None,
    upload: ParsedUpload,
    fresh: NDArray[np.uint8],
) -> UpdateResult:
    """Train from the initial weights on the stored rows and the upload.

    Never from the present weights: they may have seen rows erased since. Raises RefusedError if
    the rows cannot be trained on.
    """
    services, lease = job.services, job.lease
    config = network_config(job.model)
    blocks = {o: block for o, block in upload.blocks.items() if isinstance(block, InputBlock)}
    with services.reading() as session:
        rows = holdings(assemble(services, session, lease.model_id, blocks), config)
        salted = salts_of(session, lease.model_id)
    require_rows(before, data_of(rows, salted, set(upload.records)))
    salted |= zip(upload.records, split(fresh), strict=True)
    result = retrained(job, config, rows, salted)
    return replace(result, repeated=repeat(job, config, rows, result))


def forget(job: JobContext, before: ModelVersion, members: Sequence[BatchMember]) -> Update:
    """Make the model forget the members' records by the method that they name.

    A method that ends without a model to publish (WITHOUT_A_MODEL) falls back to a retraining.
    Raises RefusedError if the method lacks what it needs.
    """
    services, lease = job.services, job.lease
    config = network_config(job.model)
    leaving = {record for member in members for record in member.salts}
    with services.reading() as session:
        request = session.get_one(ErasureRequest, lease.request_id)
        held = assemble(services, session, lease.model_id)
        salted = salts_of(session, lease.model_id)
        file = services.artifacts.get(session, before.head_id)
    rows = holdings(held, config)
    result = _forgotten(job, config, rows, salted, leaving, request.method, file)
    owned = owned_by_subject(members)
    rest = {
        one.subject: one.block.without(owned[one.subject])
        for one in held
        if one.subject is not None and one.subject in owned
    }
    digests = row_digests(rows, salted)
    kept = result.secret
    # A retraining is repeated, not compared with the model before.
    if result.claim == EMPIRICAL:
        kept = network_before.encode(file, rows, salted, leaving)
    removed = tuple(sorted(digests[record].hex() for record in leaving))
    return Update(result, rest, before=kept, rows_gone=removed)


def _forgotten(
    job: JobContext,
    config: NetworkConfig,
    rows: Holdings,
    salted: Mapping[str, bytes],
    leaving: set[str],
    method_id: str,
    file: bytes,
) -> UpdateResult:
    services = job.services
    sides = divide(rows, leaving)
    method = config.method(method_id)
    if sides.request is None or not sides.retained or method_id == RETRAIN.id:
        # Rows that were never trained on leave no trace; the retraining proves that they did
        # not.
        why_not = attempt.not_run(method_id, trained_on=sides.request is not None)
        return retrained(job, config, rows, salted, leaving, why_not)
    network, weights = decode_weights(file)
    data = data_of(rows, salted, leaving)
    if (known := gave_way(job, data)) is not None:
        return retrained(job, config, rows, salted, leaving, known)
    judge = validation(config, rows, device_of(services), leaving)
    if judge is None and method_id in TESTED:
        why = f"{method_id}: no held-out rows are left to guard its step"
        return retrained(job, config, rows, salted, leaving, why)
    case = UnlearningCase(
        network=network,
        weights=weights,
        request=sides.request,
        config=config.training_of(sides.retained),
        retained=retain_side(job, sides),
        targets=forget_side(job, sides),
        data=data,
        validation=judge,
    )
    try:
        terms = load_terms(services, job.model, config, sides.retained, method_id)
        with out_of_memory_named(case):
            carried = resumed(job, data, lambda hooks: carry_out(method, terms, case, hooks))
    except (*WITHOUT_A_MODEL, *GIVES_WAY) as error:
        why = f"{method_id}: {type(error).__name__.removesuffix('Error')}"
        return retrained(job, config, rows, salted, leaving, why)
    result = approximated(job, config, method, case, carried.found, digest_of(file))
    return replace(result, bounds=carried.bounds, secret=carried.secret)
