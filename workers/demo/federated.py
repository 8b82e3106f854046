"""`lethe demo-federated`: a deep model forgets one of ten clients, by every applicable method.

Measurements, not certificates: whether a model has forgotten is measured against one retrained
without the client, which is affordable here but not in production.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from lethe.cli.text.waiting import Waiting
from lethe.client.answers import Progress
from workers.data.digits import load_digit_images
from workers.data.image_npz import load_image_npz
from workers.demo.forgetting import ALPHA, CLIENTS, Measured, federate, learn, measure, unlearn
from workers.methods.network.base import Hooks, Tick
from workers.methods.network.registry import make
from workers.training.fedavg.base import Work
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.rounds import sizes
from workers.training.networks.weights import count

METHODS = ("natural", "puf-special", "puf-regular", "hf-kcu")
RECOVERY = {"rounds": 2, "epochs": 1.0}


def table(lines: Sequence[Measured], baseline: Work) -> str:
    """Return the lines as a table; `baseline` is the retraining to compare compute with."""
    header = ("model", "test", "forget", "retained", "seconds", "GFLOP", "MB", "compute", "")
    rows: list[tuple[str, ...]] = [header]
    for line in lines:
        if line.work is None:
            rows.append((line.name, *"-------", line.note))
            continue
        work = line.work
        sent = (work.bytes_down + work.bytes_up) / 1e6
        ratio = f"1/{baseline.flops / work.flops:.1f}" if work.flops else "0"
        rows.append(
            (
                line.name,
                *(f"{100 * share:.1f}" for share in (line.test, line.forget, line.retained)),
                f"{work.seconds:.1f}",
                f"{work.flops / 1e9:.1f}",
                f"{sent:.1f}",
                ratio,
                line.note,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, len(header) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


class Teller:
    """Progress on stderr of one phase after another, and the seconds of each."""

    def __init__(self) -> None:
        self._name = ""
        self._waiting: Waiting | None = None

    def begin(self, name: str) -> Callable[[Tick], None]:
        """Begin a phase; return the callback for its rounds."""
        self.end()
        self._name, self._waiting = name, (waiting := Waiting(name))

        def tell(tick: Tick) -> None:
            state = "running"
            if waiting.live and tick.loss is not None:  # a file gets a line for each new state
                state = f"loss {tick.loss:.3f}"
            waiting.tell(state, Progress(tick.phase, tick.done, tick.total, "rounds"))

        return tell

    def end(self) -> None:
        """End the phase, if there is one."""
        if self._waiting is not None:
            self._waiting.clear()
            click.echo(f"  {self._name}: {self._waiting.seconds:.1f} s", err=True)
        self._waiting = None


def run(data: Path | None, seed: int, rounds: int) -> None:
    """Train, forget one client by each method, retrain, and print the table.

    Raises RefusedError or DatasetError for data that cannot be used.
    """
    for method in METHODS:
        make(method)  # an unknown one is refused now, not after the training
    images = load_digit_images() if data is None else load_image_npz(data)
    local = LocalConfig(epochs=2, batch_size=32, learning_rate=0.05, momentum=0.9)
    config = TrainingConfig(rounds=rounds, seed=seed, local=local)
    federated = federate(images, config, seed=seed)
    total = sum(sizes(federated.clients).values())
    click.echo(
        f"{CLIENTS} clients with {total} images, labels skewed by Dirichlet({ALPHA}); the "
        f"largest, with {len(federated.forget)} of them, is to be forgotten.\n"
        f"SimpleCNN, {count(federated.network):,} parameters, FedAvg, {rounds} rounds of 2 "
        "local epochs.\n"
        "These are measurements. No certificate is issued: for those, the service runs a "
        "method by\n`lethe demo --method puf-special`."
    )
    teller = Teller()
    case, work = learn(federated, teller.begin("original model"))
    lines = [measure(federated, "original", case.weights, work)]
    for method in METHODS:
        lines.append(
            unlearn(federated, case, method, {"recovery": RECOVERY}, teller.begin(method))
        )
    retrained = make("retrain").run(case, Hooks(tell=teller.begin("retrain")))
    teller.end()
    lines.append(measure(federated, "retrained", retrained.weights, retrained.work))
    click.echo("\nAccuracy in %, on rows of the test set, of the client that goes, of the rest")
    click.echo(table(lines, retrained.work))
    click.echo(
        "\nForgetting is the forget accuracy of the retrained model, no more and no less. "
        "Natural is\nthe control: recovery without unlearning. Recovery: 2 rounds of 1 epoch."
    )
