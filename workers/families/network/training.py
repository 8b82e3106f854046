"""Trainings of deep models under a lease: resumable, on this installation's engine."""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import torch

from app.service.context import Services
from lethe.certificates.escalation import from_line, write_escalation
from lethe.errors import LetheError
from workers import devices
from workers.families.network import progress
from workers.families.network.config import NetworkConfig
from workers.families.network.rows import Holdings, row_digests, rows_digest
from workers.families.network.sides import ForgetRetainSplit, divide
from workers.families.network.state import TrainingState, encode_state
from workers.jobs import checkpoints
from workers.jobs.lease import Lease
from workers.jobs.update import UpdateResult
from workers.jobs.versions import Encoded
from workers.methods.network.base import Hooks, Side, TargetError, Tick
from workers.methods.network.hf_kcu.products import NobodyAnsweredError
from workers.methods.network.retrain import Retrain, retraining
from workers.silos.answer import THREADS
from workers.silos.choose import engine_for
from workers.training.fedavg.base import cost_notes
from workers.training.fedavg.determinism import environment
from workers.training.fedavg.device import choose, facts_of
from workers.training.fedavg.errors import CheckpointError, RoundFailedError
from workers.training.fedavg.rounds import Trained, sizes
from workers.training.fedavg.server import initial_state
from workers.training.networks.files import digest_of, encode_weights
from workers.training.networks.weights import Weights, initial_weights
from workers.training.replay.retraining import most_missing

RETRAIN = Retrain()
T = TypeVar("T")


class RoundLostError(LetheError):
    """Too few silos answered; the job waits for them and goes on from its checkpoint."""

    slug, title, status = "round-lost", "Too few silos answered", 503


def retrained(
    services: Services,
    lease: Lease,
    config: NetworkConfig,
    rows: Holdings,
    salted: Mapping[str, bytes],
    leaving: Collection[str] = (),
    escalated: str | None = None,
) -> UpdateResult:
    """Train from the initial weights on the rows that stay.

    escalated: why another method gave way to this one. Raises RefusedError if they cannot
    be trained on, RoundLostError to be tried again.
    """
    sides = divide(rows, leaving)
    data = data_of(rows, salted, leaving)
    start = initial_weights(config.network, config.training.seed)
    side, training = stays(services, lease, sides), config.training_of(sides.stays)

    def train(hooks: Hooks) -> Trained:
        if not sides.stays:  # a training on nothing ends where it began
            return Trained(initial_state(start, training.server), ())
        if hooks.tell is not None and hooks.resume is None:
            hooks.tell(Tick("retrain", 0, training.rounds))
        return retraining(config.network, side, training, start, data=data, hooks=hooks)

    trained = resumed(services, lease, train)
    missing = tuple(
        (record.round, fault.client) for record in trained.records for fault in record.faults
    )
    if len(missing) > most_missing(training, len(sides.stays)) and services.settings.silos:
        checkpoints.discard(services, lease)
        raise RoundLostError("most answers of silos were missing: it is trained once more")
    named = config.network.id, config.network.parameters
    origin = digest_of(encode_weights(*named, start))
    parameters = {
        **described(services, config, side),
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


def data_of(rows: Holdings, salted: Mapping[str, bytes], leaving: Collection[str] = ()) -> str:
    """Return the digest of all rows but those that leave."""
    digests = row_digests(rows, salted)
    return rows_digest(digest for record, digest in digests.items() if record not in leaving)


def stays(services: Services, lease: Lease, sides: ForgetRetainSplit) -> Side:
    """Return the side of those who stay."""
    engine = engine_for(services, lease.job_id, lease.model_id, sides.stays, sides.stays_at)
    return Side(engine, sizes(sides.stays))


def goes(services: Services, lease: Lease, sides: ForgetRetainSplit) -> Side:
    """Return the side of those who go."""
    engine = engine_for(services, lease.job_id, lease.model_id, sides.goes, sides.goes_at)
    return Side(engine, sizes(sides.goes))


def resumed(services: Services, lease: Lease, run: Callable[[Hooks], T]) -> T:
    """Run a training from the stage's checkpoint, keep its own and tell of its rounds.

    A checkpoint of another run, such as of the method that gave way to this one, is left.
    Raises RoundLostError where silos may come back; whatever else `run` raises.
    """
    with services.reading() as session:
        last = checkpoints.load(services, session, lease)

    def save(data: bytes) -> None:
        checkpoints.save(services, lease, data)

    tell = progress.teller(services, lease)
    try:
        if last is not None:
            try:
                return run(Hooks(save=save, resume=last, tell=tell))
            except CheckpointError:
                pass  # begins anew, below
        return run(Hooks(save=save, tell=tell))
    except RoundFailedError as error:
        if services.settings.silos == 0:
            raise  # it would fail in the same way again
        raise RoundLostError(str(error)) from None
    except (TargetError, NobodyAnsweredError) as error:
        if services.settings.silos == 0 or lease.tries >= services.settings.max_tries:
            raise  # it names another method
        raise RoundLostError(str(error)) from None


def encoded(config: NetworkConfig, weights: Weights, state: TrainingState) -> Encoded:
    """Return the artifacts of a version; its `statistics` are the digest of its rows."""
    file = encode_weights(config.network.id, config.network.parameters, weights)
    start = state.start if state.exact else None
    return Encoded(file, encode_state(state), state.data, start=start)


def described(services: Services, config: NetworkConfig, side: Side) -> dict[str, str]:
    """Return what a certificate says of a network, its training and where that ran."""
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
    """Return where this installation trains: silos compute on processors."""
    return torch.device("cpu") if services.settings.silos else choose(devices.for_training())


def here(services: Services) -> dict[str, str]:
    """Return what equal bits need to agree on, as this process would train."""
    return {**environment(device_of(services)), "threads": str(THREADS)}
