"""Table 3: test accuracy of every way to the head, on 100 clients.

FedAvg, FATS and Exact-Fun train a linear head with cross-entropy by the schedules of the
paper's appendix A1.
"""

from dataclasses import dataclass

from benchmarks.common import refit
from benchmarks.ridge_paper.contenders import PAPER, Start
from benchmarks.ridge_paper.exact import federated, head64
from benchmarks.ridge_paper.partition import members
from workers.arrays import Matrix

CENTRAL, EXACT = "central ridge", "exact ledger"


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """Test accuracy on one data set by each method, and what the data set is."""

    data: str
    about: str
    rows: int
    dimension: int
    classes: int
    test_rows: int
    accuracy: dict[str, float]


def measure(start: Start) -> AccuracyRow:
    """Return the table's row for one data set, whose contenders are trained already."""
    task, config = start.task, start.task.config
    exact = federated(task, members(start.owners))
    heads: dict[str, Matrix] = {
        CENTRAL: refit(task.features, task.targets, config.penalty),
        **{name: ledger.head() for name, ledger in start.contenders(PAPER).items()},
        EXACT: head64(exact),
    }
    return AccuracyRow(
        data=task.name,
        about=task.about,
        rows=len(task.rows),
        dimension=config.dimension,
        classes=config.classes,
        test_rows=len(task.test_labels),
        accuracy={name: task.accuracy(head) for name, head in heads.items()}
        | start.federated.accuracy(),
    )
