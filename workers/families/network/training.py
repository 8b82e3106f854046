"""Trainings of deep models under a lease: resumable, recorded, and repeated when required."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

import torch

from app.service.context import Services
from app.vault.master import has_noise
from lethe import canonical
from lethe.certificates.statement import from_line, write_escalation
from lethe.errors import LetheError
from workers import devices
from workers.errors import RefusedError
from workers.families.network import progress
from workers.families.network.config import (
    NetworkConfig,
    TrainingState,
    decode_state,
    encode_state,
)
from workers.families.network.data.rows import Holdings, row_digests, rows_digest
from workers.families.network.data.sides import ForgetRetainSplit, Places, divide
from workers.leases import checkpoints
from workers.leases.lease import JobContext
from workers.lineage.logged import OTHER_ROWS
from workers.lineage.versions import OtherModelError
from workers.methods.network.base import (
    Hooks,
    Side,
    TargetError,
    Tick,
    Unlearned,
    UnlearningCase,
    UnlearningMethod,
)
from workers.methods.network.hf_kcu.products import NobodyAnsweredError
from workers.methods.network.recovery import OutOfMemoryError, named_out_of_memory
from workers.methods.network.retrain import Retrain, retraining
from workers.provenance import NETWORK_ROOMS, code_digest
from workers.provenance import environment as provenance
from workers.silos.answer import THREADS
from workers.silos.engine import engine_for
from workers.training.fedavg.base import ClientData, cost_notes
from workers.training.fedavg.determinism import environment
from workers.training.fedavg.device import choose, facts_of
from workers.training.fedavg.errors import CheckpointError, RoundFailedError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import Trained, sizes
from workers.training.fedavg.server import initial_state
from workers.training.networks.weights import (
    Weights,
    digest_of,
    encode_weights,
    initial_weights,
)
from workers.training.replay.models import most_missing, reexecute
from workers.updates.update import Encoded, UpdateResult

RETRAIN = Retrain()
_LENGTH = 8  # bytes, big-endian, of a number before a checkpoint
T = TypeVar("T")


class RoundLostError(LetheError):
    """Too few silos answered; the job waits for them and resumes from its checkpoint."""

    slug, title, status = "round-lost", "Too few silos answered", 503


def retrained(
    job: JobContext,
    config: NetworkConfig,
    rows: Holdings,
    salted: Mapping[str, bytes],
    leaving: Collection[str] = (),
    escalated: str | None = None,
) -> UpdateResult:
    """Train from the initial weights on the retained rows.

    escalated: why another method fell back to this one. Raises RefusedError if the rows cannot
    be trained on, RoundLostError to be retried.
    """
    sides = divide(rows, leaving)
    data = data_of(rows, salted, leaving)
    start = initial_weights(config.network, config.training.seed)
    side, training = retain_side(job, sides), config.training_of(sides.retained)

    def train(hooks: Hooks) -> Trained:
        if not sides.retained:  # a training without rows would return the initial weights
            return Trained(initial_state(start, training.server), ())
        if hooks.tell is not None and hooks.resume is None:
            hooks.tell(Tick("retrain", 0, training.rounds))

        def save(checkpoint: bytes) -> None:
            _require_memory(side)  # who resumes from it would not know what it lacks
            if hooks.save is not None:
                hooks.save(checkpoint)

        keeping = replace(hooks, save=save)  # called after each round
        try:
            return retraining(config.network, side, training, start, data=data, hooks=keeping)
        except RoundFailedError:
            _require_memory(side)
            raise

    trained = resumed(job, data, train, escalated)
    missing = tuple(
        (record.round, fault.client) for record in trained.records for fault in record.faults
    )
    if (
        len(missing) > most_missing(training, len(sides.retained))
        and job.services.settings.silos
    ):
        checkpoints.discard(job)
        raise RoundLostError("most answers of silos were missing: it is trained once more")
    named = config.network.id, config.network.parameters
    origin = digest_of(encode_weights(*named, start))
    parameters = {
        **described(job.services, config, side),
        "retrain.rounds": str(len(trained.records)),
        "retrain.start": origin,
        "retrain.missing": str(len(missing)),
        **cost_notes(trained.work),
    }
    if escalated is not None:
        attempt = from_line(escalated)
        parameters |= {"asked": attempt.method, **write_escalation([attempt])}
    return UpdateResult(
        encoded=encoded(
            config, trained.weights, TrainingState(origin, data, len(trained.records), missing)
        ),
        method=RETRAIN.id,
        method_version=RETRAIN.version,
        claim="exact-retrained",
        parameters=parameters,
        escalated=escalated,
    )


def approximated(
    job: JobContext,
    config: NetworkConfig,
    method: UnlearningMethod,
    case: UnlearningCase,
    found: Unlearned,
    origin: str,
    named: Mapping[str, str] = MappingProxyType({}),
) -> UpdateResult:
    """Return the version that a method other than the retraining made of the model `origin`.

    named: parameters about the attempt that it belongs to.
    """
    state = TrainingState(origin, case.data, config.training.rounds, exact=False)
    parameters = {
        **found.notes,  # first: a method's notes must not override the service's
        **described(job.services, config, case.retained),
        **cost_notes(found.work),
        **named,
    }
    made = encoded(config, found.weights, state)
    return UpdateResult(made, method.id, method.version, found.claim, parameters)


def data_of(rows: Holdings, salted: Mapping[str, bytes], leaving: Collection[str] = ()) -> str:
    """Return the digest of all rows except those to erase.

    Raises OtherModelError if a record has two rows. The digest would cover only one of them,
    and a restored old block of an erased record could be learned beside the one added back.
    """
    digests = row_digests(rows, salted)
    if len(digests) < sum(len(own.records) for own in rows.values()):
        raise OtherModelError(OTHER_ROWS)
    return rows_digest(digest for record, digest in digests.items() if record not in leaving)


def retain_side(job: JobContext, sides: ForgetRetainSplit) -> Side:
    """Return the clients' retained rows, as methods use them."""
    return _side(job, sides.retained, sides.retained_at)


def forget_side(job: JobContext, sides: ForgetRetainSplit) -> Side:
    """Return the clients' rows to forget, as methods use them."""
    return _side(job, sides.targets, sides.targets_at)


def _side(job: JobContext, rows: Mapping[str, ClientData], places: Places) -> Side:
    engine = engine_for(job.services, job.lease.job_id, job.lease.model_id, rows, places)
    return Side(engine, sizes(rows))


@dataclass(frozen=True, slots=True)
class Kept:
    """A stage's checkpoint.

    origin: of `_origin`. began: the token of the lease that began it in place of another
    origin's, 0 if it was the first. why: the outcome of the method that gave way to its run.
    """

    origin: bytes
    began: int
    why: str | None
    checkpoint: bytes

    def encode(self) -> bytes:
        """Return the bytes that are sealed."""
        why = (self.why or "").encode()
        numbers = self.began.to_bytes(_LENGTH) + len(why).to_bytes(_LENGTH)
        return self.origin + numbers + why + self.checkpoint

    @classmethod
    def decode(cls, data: bytes, origin: bytes) -> "Kept | None":
        """Return the checkpoint, None if it is of another origin."""
        if not data.startswith(origin):
            return None
        first = len(origin)
        second, third = first + _LENGTH, first + 2 * _LENGTH
        end = third + int.from_bytes(data[second:third])
        why = data[third:end].decode() or None
        return cls(origin, int.from_bytes(data[first:second]), why, data[end:])


def gave_way(job: JobContext, data: str) -> str | None:
    """Return why a method gave way to the retraining that the stage has begun, if one did.

    data: the digest of the rows that stay. The method is not run once more: it would end in the
    same way, and its checkpoints would replace those of the retraining.
    """
    found = checkpoints.load(job)
    kept = None if found is None else Kept.decode(found, _origin(job.services, data))
    return None if kept is None else kept.why


def resumed(job: JobContext, data: str, run: Callable[[Hooks], T], why: str | None = None) -> T:
    """Run a training from the stage's checkpoint, saving checkpoints and recording its rounds.

    data: the digest of the rows that stay. why: the outcome of a method that gave way to this
    run, for `gave_way`.

    A checkpoint of another run, such as of the method that fell back to this one, is ignored.
    So is one of another machine, library or code: a certificate names those of the worker that
    publishes, and nobody could repeat a training that two kinds of machine shared.
    Raises RoundLostError if silos may come back; and whatever else `run` raises.
    """
    origin, found = _origin(job.services, data), checkpoints.load(job)
    kept = None if found is None else Kept.decode(found, origin)
    last = None if kept is None else kept.checkpoint
    began = 0 if found is None else job.lease.token
    if kept is not None:
        began = kept.began

    def save(checkpoint: bytes) -> None:
        # What replaces others' work is no progress in the try that begins it.
        made = Kept(origin, began, why, checkpoint).encode()
        checkpoints.save(job, made, progress=began != job.lease.token)

    tell, silos = progress.recorder(job), job.services.settings.silos
    try:
        if last is not None:
            try:
                return run(Hooks(save=save, resume=last, tell=tell))
            except CheckpointError:
                pass  # starts over, below
        return run(Hooks(save=save, tell=tell))
    except RoundFailedError as error:
        if silos == 0:
            raise  # it would fail in the same way again
        raise RoundLostError(str(error)) from None
    except (TargetError, NobodyAnsweredError) as error:
        if silos == 0 or job.lease.tries >= job.services.settings.max_tries:
            raise  # the message names another method
        raise RoundLostError(str(error)) from None


def _origin(services: Services, data: str) -> bytes:
    """Return the SHA-256 of the rows, and of what a certificate says of code and machine."""
    said = {**provenance(), **here(services), "code": code_digest(*NETWORK_ROOMS)}
    return hashlib.sha256(canonical.encode([data, said])).digest()


def _require_memory(side: Side) -> None:
    """Raise OutOfMemoryError if a client's rows did not fit into this process's device.

    Its answers would be missing from the model, and from the verifier's repetition on the same
    device as well.
    """
    if isinstance(side.engine, InProcess) and side.engine.out_of_memory:
        raise OutOfMemoryError(
            "the memory did not suffice for a client's rows, and a training without them is "
            "not the registered one: run a worker with more memory, or register the model "
            "with a smaller batch_size"
        )


@contextmanager
def out_of_memory_named(case: UnlearningCase) -> Iterator[None]:
    """Turn what a method raises because memory ran out into OutOfMemoryError.

    In this process a client that runs out of memory is left out of its round. A method that
    cannot do without its answer raises only that the answer is missing, and nobody could bring
    it: the clients share this process's device.
    """
    engines = [side.engine for side in (case.retained, case.targets) if side is not None]
    with named_out_of_memory():
        try:
            yield
        except (NobodyAnsweredError, RoundFailedError, TargetError) as error:
            if any(isinstance(one, InProcess) and one.out_of_memory for one in engines):
                raise MemoryError from error
            raise


def encoded(config: NetworkConfig, weights: Weights, state: TrainingState) -> Encoded:
    """Return the artifacts of a version; its `statistics` are the digest of its rows."""
    file = encode_weights(config.network.id, config.network.parameters, weights)
    start = state.start if state.exact else None
    return Encoded(file, encode_state(state), state.data, start=start)


def described(services: Services, config: NetworkConfig, side: Side) -> dict[str, str]:
    """Return a certificate's parameters about a network, its training and where that ran."""
    training, silos = config.training, services.settings.silos
    shape = ",".join(f"{name}={value}" for name, value in config.network.shape)
    return {
        "data": "rows",
        "engine": f"silos:{silos}" if silos else "in-process",
        "network": f"{config.network.id}({shape})",
        "training.rounds": str(training.rounds),
        "training.epochs": repr(training.local.epochs),
        "training.seed": str(training.seed),
        "held-out": repr(config.held_out),
        **here(services),
        **facts_of(side.engine, training.local),
    }


def device_of(services: Services) -> torch.device:
    """Return the device on which this installation trains: silos compute on processors."""
    return torch.device("cpu") if services.settings.silos else choose(devices.for_training())


def here(services: Services) -> dict[str, str]:
    """Return what must match for equal bits, for a training in this process."""
    return {**environment(device_of(services)), "threads": str(THREADS)}


class NotRepeatedError(LetheError):
    """The repetition ended with another model; both are trained again."""

    slug, title, status = "not-repeated", "The training could not be repeated", 409


def repeat(
    job: JobContext,
    config: NetworkConfig,
    rows: Holdings,
    result: UpdateResult,
) -> bool:
    """Return whether the training was repeated: only models with registered noise require it.

    Raises:
        NotRepeatedError: It ended with another model, and there are tries left.
        RefusedError: It ended with another model, and no tries are left.
    """
    if not has_noise(job.model.config):
        return False
    services = job.services
    clients = divide(rows, ()).retained
    missing = decode_state(result.encoded.state).missing if services.settings.silos else ()
    training = config.training_of(clients)
    tell = progress.repetition(job, training.rounds)
    again = reexecute(config.network, clients, training, missing, device_of(services), tell)
    if again == result.encoded.head_digest:
        return True
    problem = "the training was repeated and ended with another model: it is not published"
    if job.lease.tries < services.settings.max_tries:
        checkpoints.discard(job)
        raise NotRepeatedError(problem)
    raise RefusedError(f"{problem}. Train and repeat on machines alike, then send it again")
