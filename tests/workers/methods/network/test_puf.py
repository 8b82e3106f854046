"""PUF's step against its equations written out, its guard, and targets that misbehave."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.workers.methods.network.small import (
    REQUESTS,
    SEVERAL,
    SOME_ROWS,
    TRAINED,
    VALIDATION,
    WHOLE,
    Changed,
    KilledError,
    Silent,
    case,
    equal,
    killed_after,
    scaled,
)
from tests.workers.training.fedavg.small import (
    CLIENTS,
    CONFIG,
    LOCAL,
    NETWORK,
    client_data,
    spoiled,
)
from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Side,
    TargetError,
    UnlearningCase,
    UnlearningRequest,
    UnmetNeedError,
)
from workers.methods.network.guard import NoSafeStepError, StepGuard
from workers.methods.network.local_case import divide, local_case
from workers.methods.network.puf import Puf, regular, special
from workers.methods.network.recovery import Recovery
from workers.methods.network.validation import by_clients
from workers.training.fedavg.base import Clients, ClientUpdate, Fault, RoundTask
from workers.training.fedavg.client.local import train_locally
from workers.training.fedavg.determinism import deterministic
from workers.training.fedavg.errors import CheckpointError, DivergedError, RoundFailedError
from workers.training.fedavg.evaluate import evaluate
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import make_tasks, sizes, train
from workers.training.fedavg.seeds import derive
from workers.training.networks.weights import Weights, difference, norm

NONE = Recovery(rounds=0)
ROUND = CONFIG.rounds + 1


def local_update(
    given: UnlearningCase, client: str, rows: Clients, epochs: float
) -> ClientUpdate:
    """A client's answer in the unlearning round, without any engine."""
    local = replace(CONFIG.local, epochs=epochs)
    seed = derive(CONFIG.seed, "unlearning", CONFIG.rounds)
    (task,) = make_tasks(given.network, given.weights, [client], local, round=ROUND, seed=seed)
    with deterministic():
        return train_locally(task, rows[client])


def written_out(
    given: UnlearningCase,
    eta_u: float,
    eta_r: float | None,
    epochs: float = 1.0,
    rows: bool = True,
) -> dict[str, torch.Tensor]:
    """Equations 5 to 9, client by client; eta_r None: Special."""
    stays, goes = divide(CLIENTS, given.request)
    minus = {c: local_update(given, c, goes, epochs) for c in goes}
    plus = {}
    if eta_r is not None:
        plus = {c: local_update(given, c, stays, LOCAL.epochs) for c in stays if c not in goes}
    n = sum(u.samples for u in (*minus.values(), *plus.values()))
    found = {name: part.double() for name, part in given.weights.items()}
    for sign, updates in ((-eta_u, minus), (eta_r or 0.0, plus)):
        for update in updates.values():
            weight = update.samples if rows else 1
            for name, part in update.delta.items():
                found[name] = found[name] + sign * weight / n * part.double()
    return found


def assert_near(left: Weights, right: Weights) -> None:
    for name in right:
        torch.testing.assert_close(left[name].double(), right[name].double(), rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("epochs", [1.0, 3.0])
def test_the_step_is_the_papers_equation(name: str, epochs: float) -> None:
    given = case(REQUESTS[name])
    found = special(1.5, epochs=epochs, guard=None, recovery=NONE).run(given)
    assert_near(found.weights, written_out(given, 1.5, None, epochs))
    found = regular(7.0, retained_rate=0.8, epochs=epochs, guard=None, recovery=NONE).run(given)
    assert_near(found.weights, written_out(given, 7.0, 0.8, epochs))
    assert found.claim == "empirical-approximate"
    assert found.notes["step.used"] == "7"


def test_the_printed_line_15_is_a_labelled_ablation() -> None:
    given = case(SEVERAL)
    printed = special(2.0, guard=None, recovery=NONE, weighting="as-printed").run(given)
    assert_near(printed.weights, written_out(given, 2.0, None, rows=False))
    assert printed.notes["puf.weighting"] == "as-printed"
    right = special(2.0, guard=None, recovery=NONE).run(given)
    short, long = (norm(difference(found.weights, TRAINED)) for found in (printed, right))
    assert short < long / 4  # without |D_i| the step all but disappears


def test_with_ten_balanced_clients_20_regular_is_2_special() -> None:
    clients = {f"c{number}": client_data(6, number) for number in range(10)}
    weights = train(NETWORK, sizes(clients), CONFIG, InProcess(clients)).weights
    request = UnlearningRequest(frozenset({"c3"}))
    given = local_case(NETWORK, weights, request, CONFIG, clients)
    two = special(2.0, guard=None, recovery=NONE).run(given)
    twenty = regular(20.0, retained_rate=0.0, guard=None, recovery=NONE).run(given)
    assert_near(two.weights, twenty.weights)
    assert norm(difference(two.weights, weights)) > 0.01
    other = regular(10.0, retained_rate=0.0, guard=None, recovery=NONE).run(given)
    assert norm(difference(other.weights, two.weights)) > 0.01


def test_the_step_forgets_and_recovery_brings_the_others_back() -> None:
    given = case()
    before = evaluate(NETWORK, TRAINED, CLIENTS["bert"]).loss
    stepped = special(2.0, guard=None, recovery=NONE).run(given)
    assert evaluate(NETWORK, stepped.weights, CLIENTS["bert"]).loss > before
    recovered = special(2.0, guard=None, recovery=Recovery(rounds=5)).run(given)
    losses = [
        evaluate(NETWORK, found.weights, VALIDATION).loss for found in (recovered, stepped)
    ]
    assert losses[0] < losses[1]
    assert recovered.work.rounds == 6


class Listening:
    """An engine that keeps the tasks it was given."""

    def __init__(self, inner: InProcess) -> None:
        self.inner, self.heard = inner, list[RoundTask]()

    def run(self, tasks: Any, *, timeout: float) -> Any:
        self.heard += tasks
        return self.inner.run(tasks, timeout=timeout)


def test_who_is_asked_for_what() -> None:
    given = case(SOME_ROWS)
    assert given.targets is not None
    stays, goes = divide(CLIENTS, SOME_ROWS)
    staying, going = Listening(InProcess(stays)), Listening(InProcess(goes))
    given = replace(
        given, retained=Side(staying, sizes(stays)), targets=Side(going, sizes(goes))
    )
    special(guard=None, recovery=Recovery(rounds=1)).run(given)
    assert [(t.client, t.round, t.config.epochs) for t in going.heard] == [("bert", ROUND, 1.0)]
    # The target's other rows take part in recovery.
    assert [t.client for t in staying.heard] == ["anna", "bert", "cleo"]
    staying.heard.clear()
    regular(guard=None, recovery=NONE).run(given)
    # and not in the unlearning round.
    assert [(t.client, t.round) for t in staying.heard] == [("anna", ROUND), ("cleo", ROUND)]


def test_the_unlearning_round_is_one_round_without_augmentation() -> None:
    stays, goes = divide(CLIENTS, WHOLE)
    staying, going = Listening(InProcess(stays)), Listening(InProcess(goes))
    cropped = replace(CONFIG, local=replace(LOCAL, augment="crop-flip", decay=0.5))
    given = replace(
        case(),
        config=cropped,
        retained=Side(staying, sizes(stays)),
        targets=Side(going, sizes(goes)),
    )
    found = regular(guard=None, recovery=NONE).run(given)
    assert {t.config.augment for t in staying.heard + going.heard} == {"none"}
    assert {t.config.rate(t.round) for t in going.heard} == {0.2 * 0.5**CONFIG.rounds}
    assert found.work.rounds == 1
    assert found.work.steps > 0


FAULTS: dict[str, tuple[Callable[[ClientUpdate], ClientUpdate | Fault | None], str]] = {
    "offline": (lambda update: None, "offline: use hf-kcu or retrain"),
    "NaN": (spoiled(math.nan), r"not-finite\): use hf-kcu or retrain"),
    "infinity": (spoiled(-math.inf), "not-finite"),
    "enormous": (spoiled(1e7), "norm"),
    "fewer rows than registered": (lambda u: replace(u, samples=1), "mismatch"),
    "another shape": (lambda u: replace(u, delta={}), "shape"),
    "out of memory": (lambda u: Fault(u.client, "client-error", "MemoryError"), "client-error"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("make", [special, regular])
def test_a_target_that_cannot_be_used_is_named_with_its_remedy(
    name: str, make: Callable[..., Puf]
) -> None:
    change, message = FAULTS[name]
    given = case()
    assert given.targets is not None
    broken = Side(Changed(given.targets.engine, change), given.targets.rows)
    given = replace(given, targets=broken, config=replace(CONFIG, max_norm=1000.0))
    before = {name: part.clone() for name, part in given.weights.items()}
    saved: list[bytes] = []
    with pytest.raises(TargetError, match=message) as caught:
        make().run(given, Hooks(save=saved.append))
    assert "bert" not in str(caught.value)
    assert equal(given.weights, before)
    assert not saved


def test_one_of_several_targets_missing_is_no_half_unlearning() -> None:
    given = case(SEVERAL)
    assert given.targets is not None
    half = Changed(given.targets.engine, lambda u: None if u.client == "anna" else u)
    with pytest.raises(TargetError, match="offline"):
        special().run(replace(given, targets=Side(half, given.targets.rows)))


def test_what_is_missing_is_refused_before_anyone_is_asked() -> None:
    given = replace(case(), retained=Side(Silent(), {"anna": 7, "cleo": 5}))
    with pytest.raises(UnmetNeedError, match="target client is offline: use hf-kcu or retrain"):
        special().run(replace(given, targets=None))
    with pytest.raises(UnmetNeedError, match="validation"):
        special().run(replace(given, validation=None))
    assert special(guard=None).needs == frozenset({"targets"})


def test_a_collapse_is_held_by_the_guard() -> None:
    """With a target's update 500 times too long, the fixed step destroys the model."""
    given = case()
    assert given.targets is not None
    assert given.validation is not None
    wild = Side(Changed(given.targets.engine, scaled(500.0)), given.targets.rows)
    each = given.validation(TRAINED).work.flops
    given = replace(given, targets=wild)
    before = evaluate(NETWORK, TRAINED, VALIDATION)
    fixed = special(2.0, guard=None, recovery=NONE).run(given)
    assert evaluate(NETWORK, fixed.weights, VALIDATION).loss > before.loss + 20
    guard = StepGuard(rise=0.5, shrink=0.5)
    held = special(2.0, guard=guard, recovery=NONE).run(given)
    after = evaluate(NETWORK, held.weights, VALIDATION)
    assert after.loss <= before.loss + 0.5
    used = float(held.notes["step.used"])
    assert 0 < used < 2.0 / 64
    assert held.notes["step.loss-after"] == f"{after.loss:.6g}"
    # It is the last of the halvings: the one before it was over the budget.
    double = special(2 * used, guard=None, recovery=NONE).run(given)
    assert evaluate(NETWORK, double.weights, VALIDATION).loss > before.loss + 0.5
    tried = held.notes["step.tried"].split()
    assert held.notes["step.evaluations"] == str(1 + len(tried))
    assert held.work.flops == fixed.work.flops + each * (1 + len(tried))
    with pytest.raises(NoSafeStepError, match="retrain"):
        special(2.0, guard=StepGuard(rise=0.5, trials=2), recovery=NONE).run(given)


def test_the_guard_of_a_regular_step_shortens_what_is_negated_and_nothing_else() -> None:
    given = case()
    assert given.targets is not None
    wild = Side(Changed(given.targets.engine, scaled(500.0)), given.targets.rows)
    held = regular(guard=StepGuard(rise=0.2, trials=32), recovery=NONE).run(
        replace(given, targets=wild)
    )
    used = float(held.notes["step.used"])
    assert used < 20
    # As if a client with an honest update had been taken back with 500 times the rate.
    assert_near(held.weights, written_out(given, 500 * used, 1.0))


def test_divergence_is_named_and_the_model_stands() -> None:
    given = case()
    assert given.targets is not None
    wild = Side(Changed(given.targets.engine, scaled(1e4)), given.targets.rows)
    with pytest.raises(DivergedError, match="guarded"):
        special(1e36, guard=None).run(replace(given, targets=wild))
    assert equal(given.weights, TRAINED)


def test_those_who_stay_may_drop_out_of_a_regular_round_down_to_the_minimum() -> None:
    given = case()
    silent = Changed(given.retained.engine, lambda u: None if u.client == "anna" else u)
    given = replace(given, retained=Side(silent, given.retained.rows))
    found = regular(guard=None, recovery=NONE).run(given)
    assert found.notes["puf.dropped"] == "1"
    strict = replace(given, config=replace(CONFIG, min_clients=2))
    with pytest.raises(RoundFailedError, match="1 of 2"):
        regular(guard=None, recovery=NONE).run(strict)


def test_those_who_stay_can_be_the_judges() -> None:
    given = case()
    judge = by_clients(NETWORK, given.retained.engine, given.retained.rows, LOCAL)
    found = special(recovery=NONE).run(replace(given, validation=judge))
    assert judge(found.weights).loss <= judge(TRAINED).loss + 1.0
    asked = int(found.notes["step.evaluations"])
    alone = special(guard=None, recovery=NONE).run(given)
    each = judge(TRAINED).work.bytes_down
    assert found.work.bytes_down == alone.work.bytes_down + asked * each


def test_a_killed_run_resumes_without_the_targets() -> None:
    given = case(SEVERAL)
    method = special(1.0, recovery=Recovery(rounds=2))
    once = method.run(given)
    for saves in (1, 2, 3):
        kept, save = killed_after(saves)
        with pytest.raises(KilledError):
            method.run(given, Hooks(save=save))
        assert given.targets is not None
        gone = replace(given, targets=Side(Silent(), given.targets.rows))
        resumed = method.run(gone, Hooks(resume=kept[-1]))
        assert equal(resumed.weights, once.weights)
        assert resumed.notes == once.notes
        assert resumed.work == once.work
        with pytest.raises(CheckpointError, match="another unlearning"):
            special(1.5, recovery=Recovery(rounds=2)).run(given, Hooks(resume=kept[-1]))


def test_the_rate_is_the_papers_or_with_a_guard_found_from_above() -> None:
    assert (special(guard=None).asked, regular(guard=None).asked) == (2.0, 20.0)
    assert (special().asked, regular().asked) == (32.0, 320.0)
    assert (special(1.5).asked, special(1.5, guard=None).asked) == (1.5, 1.5)
    found = special(recovery=NONE).run(case())
    rise = [float(found.notes[f"step.loss-{when}"]) for when in ("after", "before")]
    # The step found uses the budget of one nat, to within one trial.
    used = float(found.notes["step.used"])
    assert rise[0] - rise[1] <= 1.0
    longer = special(used / 0.7, guard=None, recovery=NONE).run(case())
    assert evaluate(NETWORK, longer.weights, VALIDATION).loss > rise[1] + 1.0


def test_equal_cases_give_equal_bits() -> None:
    found = [regular(recovery=Recovery(rounds=2)).run(case(SEVERAL)) for _ in range(2)]
    assert equal(found[0].weights, found[1].weights)
    assert found[0].work == found[1].work


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"unlearning_rate": 0.0}, "unlearning_rate"),
        ({"unlearning_rate": math.nan}, "unlearning_rate"),
        ({"retained_rate": -1.0}, "retained_rate"),
        ({"epochs": 0.0}, "epochs"),
        ({"weighting": "none"}, "weighting"),
        ({"mode": "other"}, "mode"),
    ],
)
def test_odd_settings_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        Puf(**{"mode": "special", "unlearning_rate": 2.0, **fields})


def test_a_regular_round_needs_clients_that_are_no_targets() -> None:
    all_of_them = UnlearningRequest(rows={client: (0,) for client in CLIENTS})
    given = case(all_of_them)
    with pytest.raises(UnmetNeedError, match="puf-special"):
        regular(guard=None, recovery=NONE).run(given)
    assert special(guard=None, recovery=NONE).run(given).weights.keys() == TRAINED.keys()
