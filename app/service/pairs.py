"""The matched pairs that a request's method is tested on: how many there can be and must be.

The tests of an approximate method pair erased records that were trained on with held-out
records of the same client. A request with too few of them ends in a retraining, whatever its
method, so the requester is told before it is sent. Ids are read, and no rows.
"""

from typing import Any, NamedTuple

from sqlmodel import Session, func, select

from app.ledger.sequencer import Ledger
from app.reconcile.judgement import JUDGING
from app.reconcile.model_events import model_events
from app.schemas.requests import Scope
from app.service.scope import Rows, others_of, records_of
from lethe.catalogue import TESTED
from lethe.held_out import is_held_out
from lethe.pairs import least_pairs, most_pairs, share_of_alpha
from models import Model, Record


class Pairs(NamedTuple):
    """most: the most pairs that there can be, counted up to `needed`. needed: the fewest."""

    most: int
    needed: int


MOST_READ = 50_000  # ids, 0.3 s; of who has more, and still too few pairs, nothing is said
NO_TEST = Pairs(0, 0)  # the method's guarantee needs none


def count_pairs(
    ledger: Ledger, session: Session, model: Model, method: str, scope: Scope
) -> Pairs:
    """Return the pairs of a request whose scope is narrowed, as the records are now.

    Fewer than needed cannot pass: `most` is an upper bound, also while others' requests are
    executed in the same update (each is judged on its own records), and `needed` a lower one,
    since each judgement before this one leaves it less alpha. Raises as `model_events`.
    """
    if method not in TESTED:
        return NO_TEST
    judged = len(model_events(ledger, model.ref, JUDGING))
    needed = pairs_needed(model.config["policy"], judged)
    return Pairs(_Count(session, model, needed).of(scope), needed)


def pairs_needed(policy: dict[str, Any], judged: int) -> int:
    """Return how many pairs a policy demands of the judgement after `judged` others."""
    tau, alpha, power = (float(policy[name]) for name in ("tau", "alpha", "power"))
    tests = 3 * len(policy["attacks"]) + len(policy["distances"])
    tests += policy["canary_limit"] is not None
    level = share_of_alpha(alpha, judged) / tests
    return max(int(policy["minimum_pairs"]), least_pairs(tau, level, power))


class _Count:
    """A count of pairs that ends once there are enough of them, or MOST_READ ids were read.

    So of a client who has enough it reads some `enough`/held_out ids, however many there are.
    Clients are named by their tags.
    """

    def __init__(self, session: Session, model: Model, enough: int) -> None:
        assert model.id is not None
        self._session, self._model_id, self._enough = session, model.id, enough
        config = model.config
        self._seed, self._share = config["training"]["seed"], config["held_out"]
        self._others = config["policy"]["minimum_others"]
        self._trained: dict[str, int] = {}  # erased records that were trained on, by client
        self._held: dict[str, int] = {}
        self._read = 0
        all_records = select(func.count()).where(Record.model_id == model.id)
        self._pool = session.exec(all_records).one()  # less those known to be trained on

    def of(self, scope: Scope) -> int:
        """Return the most pairs of a scope, at most `enough`."""
        for part in records_of(self._session, self._model_id, scope):
            self._see(part, self._trained)
            if self._most() >= self._enough or self._read >= MOST_READ:
                return self._enough
        named = frozenset(scope.records or ())
        pairs = sum(min(n, self._held.get(one, 0)) for one, n in self._trained.items())
        for client, erased in self._trained.items():
            held = self._held.get(client, 0)
            wanted = min(erased, held + self._enough - pairs)
            if held < wanted:
                self._see_others(scope, named, client, wanted)
                pairs += min(erased, self._held.get(client, 0)) - held
            if self._read >= MOST_READ:
                return self._enough
        return min(self._most(), self._enough)

    def _see_others(
        self, scope: Scope, named: frozenset[str], client: str, wanted: int
    ) -> None:
        """Read a client's records outside of the scope until `wanted` are held out."""
        for part in others_of(self._session, self._model_id, scope, named, client):
            self._see(part, {})
            if self._held.get(client, 0) >= wanted or self._read >= MOST_READ:
                return

    def _see(self, rows: Rows, trained: dict[str, int]) -> None:
        self._read += len(rows)
        for record, client in rows:
            if is_held_out(self._seed, self._share, record):
                self._held[client] = self._held.get(client, 0) + 1
            else:
                trained[client] = trained.get(client, 0) + 1
                self._pool -= 1

    def _most(self) -> int:
        clients = [(count, self._held.get(one, 0)) for one, count in self._trained.items()]
        return most_pairs(clients, self._pool, self._others)
