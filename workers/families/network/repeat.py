"""A contribution's training, repeated before it is published where a budget of noise begins.

Noise hides what the releases after a training still know of the erased; that the training
itself knows nothing of them is what its repetition shows, as that of a retraining does. A
bound of its distance to the optimum would not: what is within the bound has no noise.
"""

from app.service.context import Services
from lethe.errors import LetheError
from workers.errors import RefusedError
from workers.families.network import progress
from workers.families.network.certified import registered_terms
from workers.families.network.config import NetworkConfig
from workers.families.network.rows import Holdings
from workers.families.network.sides import divide
from workers.families.network.state import decode_state
from workers.families.network.training import device_of
from workers.jobs import checkpoints
from workers.jobs.lease import Lease
from workers.jobs.update import UpdateResult
from workers.training.replay.retraining import reexecute


class NotRepeatedError(LetheError):
    """The repetition ended with another model; both are made anew."""

    slug, title, status = "not-repeated", "The training could not be repeated", 409


def repeat(
    services: Services,
    lease: Lease,
    config: NetworkConfig,
    rows: Holdings,
    made: UpdateResult,
) -> bool:
    """Return whether the training was repeated: it was not where no noise is registered.

    Raises:
        NotRepeatedError: It ended with another model, and there are tries left. A training
            that was resumed on another machine may end so.
        RefusedError: There are none left.
    """
    if not registered_terms(config).sigma:
        return False
    clients = divide(rows, ()).stays
    missing = decode_state(made.encoded.state).missing if services.settings.silos else ()
    training = config.training_of(clients)
    tell = progress.repetition(services, lease, training.rounds)
    again = reexecute(config.network, clients, training, missing, device_of(services), tell)
    if again == made.encoded.head_digest:
        return True
    problem = "the training was repeated and ended with another model: it is not published"
    if lease.tries < services.settings.max_tries:
        checkpoints.discard(services, lease)
        raise NotRepeatedError(problem)
    raise RefusedError(f"{problem}. Train and repeat on machines alike, then send it again")
