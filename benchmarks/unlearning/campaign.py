"""One seed after the other: train, retrain, then every contender, each result kept at once.

The attack with shadow models goes the same way with lines of its own, so that it neither waits
for the other measures nor makes them stale: it trains the models that it attacks again, unless
their weights are there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from benchmarks.baselines.history import PastRound, Recorder, with_rounds
from benchmarks.baselines.registry import make
from benchmarks.unlearning.contenders import (
    AGAIN,
    FIRST,
    ORIGINAL,
    OWN_TRAINING,
    RETRAIN,
    Contender,
)
from benchmarks.unlearning.formulas import formula
from benchmarks.unlearning.machines import measured_on
from benchmarks.unlearning.outcome import answer, outcome
from benchmarks.unlearning.own_training import UpdateResult, run, train_and_run
from benchmarks.unlearning.records import Record, Records, append, pin_of
from benchmarks.unlearning.settings import SHADOWED
from benchmarks.unlearning.shadow import Values, attack, pool_of
from benchmarks.unlearning.task import Task
from lethe.files import write_durably
from workers.demo.federated import Teller
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Tick, UnlearningCase
from workers.methods.network.local_case import local_case
from workers.methods.network.validation import held_out
from workers.training.fedavg.base import Work
from workers.training.fedavg.checkpoint import RoundRecord
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import ServerState
from workers.training.networks.weights import Weights, decode_weights, encode_weights, size_of

HISTORY = ("fed-eraser", "pga")  # of the FedAvg training; the others have their own
KEPT = ("step.used", "step.evaluations", "recovery.rounds", "hf-kcu.form", "cg.residual")


class _Rounds(TypedDict):
    save: Callable[[bytes], None]
    resume: bytes | None


@dataclass(slots=True)
class SettingCampaign:
    """Where the lines of a setting go, and what is there already.

    shadowed: attack with shadow models in place of the usual measures.
    """

    folder: Path
    teller: Teller
    known: Records
    shadowed: bool = False

    def seed(self, task: Task, contenders: Sequence[Contender], progress: str = "") -> None:
        """Measure what of a seed is missing.

        Raises RefusedError, before anything is trained, if shadow models have too few rows.
        """
        if self.shadowed:
            pool_of(task)
        missing = [part for part in (*FIRST, *contenders) if not self._has(task, part)]
        if not missing:
            return
        named = f"{task.setting.name}, {progress or f'seed {task.seed}'}"
        needs = any(part.method in HISTORY for part in missing)
        case, work = self._original(task, f"{named}, {ORIGINAL}", needs)
        retrained, spent = self._retrained(task, case, f"{named}, {RETRAIN}")
        values = self._values(task, retrained, named)
        for contender, weights, took in zip(
            FIRST, (case.weights, retrained), (work, spent), strict=True
        ):
            if contender not in missing:
                continue
            if self.shadowed:
                self._keep(task, contender, values=values((weights,)))
            elif took is not None:
                cost = _cost(task, contender, took, size_of(weights))
                self._keep(task, contender, values=values((weights,)), cost=cost)
        for contender in FIRST:  # until here their work was known from it alone
            self._checkpoint(task, contender).unlink(missing_ok=True)
        for contender in missing:
            if contender not in FIRST:
                tell = self.teller.begin(f"{named}, {contender.label}")
                self._contend(task, contender, case, values, tell)
        self.teller.end()

    def _contend(
        self,
        task: Task,
        contender: Contender,
        case: UnlearningCase,
        values: Values,
        tell: Callable[[Tick], None],
    ) -> None:
        try:
            made = _made(task, contender, case, Hooks(tell=tell))
            found = values(made.members)
        except RefusedError as error:  # or a model whose logits are not finite
            self._keep(task, contender, refused=str(error))
            return
        if self.shadowed:
            self._keep(task, contender, values=found)
            return
        notes = made.unlearned.notes
        kept = int(notes.get("state.bytes", 0))
        storage = max(kept, size_of(made.unlearned.weights))
        self._keep(
            task,
            contender,
            values=found,
            cost=_cost(task, contender, made.unlearned.work, storage),
            notes={name: notes[name] for name in KEPT if name in notes},
        )

    def _values(self, task: Task, retrained: Weights, named: str) -> Values:
        """Return what measures a model in this campaign."""
        if self.shadowed:
            return attack(task, lambda part: self.teller.begin(f"{named}, {part}"))
        truth = answer(task, (retrained,))
        return lambda members: outcome(task, answer(task, members), truth)

    def _original(
        self, task: Task, named: str, history: bool
    ) -> tuple[UnlearningCase, Work | None]:
        """Return the case of the original model; its work is None if it was not trained now."""
        file = self._file(task, FIRST[0])
        known = file.exists() and (self.shadowed or self._has(task, FIRST[0]))
        weights: Weights
        work: Work | None = None
        past: tuple[PastRound, ...] = ()
        if known and not history:
            weights = decode_weights(file.read_bytes())[1]
        else:
            rows = sizes(task.clients)
            recorder = Recorder(InProcess(task.clients, task.device, threads=1), rows)
            tell = self.teller.begin(named)

            def after(_: ServerState, record: RoundRecord) -> bool:
                tell(Tick("retrain", record.round, task.config.rounds, record.loss))
                return False

            if history:  # of all rounds: none is left out that was trained before
                trained = train(task.network, rows, task.config, recorder, after=after)
            else:
                trained = train(
                    task.network, rows, task.config, recorder.engine,
                    after=after, **self._kept_rounds(task, FIRST[0]),
                )  # fmt: skip
            weights, work, past = trained.weights, trained.work, tuple(recorder.history)
            self._save(task, FIRST[0], weights)
        case = local_case(
            task.network,
            weights,
            task.request,
            task.config,
            task.clients,
            device=task.device,
            threads=1,
            validation=held_out(task.network, task.validation, task.device, threads=1),
        )
        return with_rounds(case, past), work

    def _retrained(
        self, task: Task, case: UnlearningCase, named: str
    ) -> tuple[Weights, Work | None]:
        file = self._file(task, FIRST[1])
        if file.exists() and (self.shadowed or self._has(task, FIRST[1])):
            return decode_weights(file.read_bytes())[1], None
        hooks = Hooks(tell=self.teller.begin(named), **self._kept_rounds(task, FIRST[1]))
        found = make(RETRAIN).run(case, hooks)
        self._save(task, FIRST[1], found.weights)
        return found.weights, found.work

    def _has(self, task: Task, contender: Contender) -> bool:
        found = self.known.get((self._name(task), task.seed, contender.label))
        return found is not None and found.pin == self._pin(task, contender)

    def _name(self, task: Task) -> str:
        return task.setting.name + (SHADOWED if self.shadowed else "")

    def _pin(self, task: Task, contender: Contender) -> str:
        return pin_of(task.setting, contender, shadowed=self.shadowed)

    def _keep(self, task: Task, contender: Contender, **parts: object) -> None:
        made: dict[str, Any] = {**parts, "machine": measured_on(task.device)}
        pin = self._pin(task, contender)
        record = Record(self._name(task), task.seed, contender.label, pin, **made)
        self.known[record.key] = record
        append(self.folder / f"{task.setting.name}.jsonl", record)

    def _file(self, task: Task, contender: Contender) -> Path:
        pin = pin_of(task.setting, contender)
        name = f"{task.setting.name}-{task.seed}-{contender.label}-{pin}.safetensors"
        return self.folder / "weights" / name

    def _kept_rounds(self, task: Task, contender: Contender) -> _Rounds:
        """Return how a training goes on behind its last round, if it was stopped."""
        file = self._checkpoint(task, contender)
        file.parent.mkdir(parents=True, exist_ok=True)
        resume = file.read_bytes() if file.exists() else None
        return {"save": lambda checkpoint: write_durably(file, checkpoint), "resume": resume}

    def _checkpoint(self, task: Task, contender: Contender) -> Path:
        return self._file(task, contender).with_suffix(".checkpoint")

    def _save(self, task: Task, contender: Contender, weights: Weights) -> None:
        file = self._file(task, contender)
        file.parent.mkdir(parents=True, exist_ok=True)
        named = task.network
        file.write_bytes(encode_weights(named.id, named.parameters, weights))


def _made(task: Task, contender: Contender, case: UnlearningCase, hooks: Hooks) -> UpdateResult:
    if contender.method in OWN_TRAINING:
        return train_and_run(contender, task, hooks)
    if contender.label == AGAIN:
        # Another seed of everything that retraining leaves to chance; the rows are the same.
        again = replace(task.config, seed=derive(task.seed, AGAIN))
        return run(contender, replace(case, config=again), hooks)
    return run(contender, case, hooks)


def _cost(task: Task, contender: Contender, work: Work, storage: int) -> dict[str, float]:
    found = {
        "flops": float(work.flops),
        "bytes": float(work.bytes_down + work.bytes_up),
        "storage": float(storage),
        "seconds": work.seconds,
    }
    estimate = formula(contender, task)
    if estimate is not None:
        found["formula_flops"] = estimate.computation
        found["formula_bytes"] = estimate.communication
        found["formula_storage"] = estimate.storage
    return found
