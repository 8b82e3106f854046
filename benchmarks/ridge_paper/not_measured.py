"""What of the two papers is not measured, why, and what it would take on a GPU: an estimate.

Operations of a backbone follow from its shape; the GPU is taken to do as many a second as in
the steps of ResNet-18 that `benchmarks.gpu_steps` timed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ridge_paper.continual import MOST_ROWS
from workers.training.fedavg.client.flops import training_flops
from workers.training.networks.registry import network

STEPS = Path(__file__).parents[1] / "gpu_steps.json"
BATCH = 64  # of the timed steps of ResNet-18
IMAGE = {"channels": 3, "height": 32, "width": 32, "classes": 100}


@dataclass(frozen=True, slots=True)
class Transformer:
    """The shape of a backbone, and how many tokens an input is."""

    layers: int
    width: int
    tokens: int
    patch: int = 0  # numbers that one token is embedded from, 0 if it is looked up

    @property
    def operations(self) -> int:
        """Those of one forward pass; a multiply-add counts as two, as everywhere here.

        A layer has 12 d² weights (attention 4, the perceptron of width 4 d has 8), each used
        once for each token, and two products of tokens with tokens.
        """
        d, tokens = self.width, self.tokens
        layer = 2 * 12 * d * d * tokens + 2 * 2 * tokens * tokens * d
        return self.layers * layer + 2 * self.patch * d * tokens


# Neither paper gives the size of images or the length of texts: 224 pixels are DINOv2's own.
DINOV2 = Transformer(12, 768, 1 + (224 // 14) ** 2, 3 * 14 * 14)
ROBERTA = Transformer(12, 768, 64)
IMAGES = 60_000  # of CIFAR-10 as of CIFAR-100
WRITERS = 22_700  # images of 100 writers: LEAF has 227 of each on average
TWEETS = 1_600_000

# ACU's appendix E: 300 epochs on 10,000, 40,000 and twice 30,000 rows; then six baselines, ten
# epochs at each of 75 requests on the retained rows, 35,000 on average.
TRAININGS = 300 * (10_000 + 40_000 + 2 * 30_000)
BASELINES = 6 * 10 * (25 + 50) * 35_000
HEAD = ("not measured", "why", "what it would take")
NO_FILE = "neither the file nor the weights of the backbone are shipped"
NOTHING = "nothing: there is no figure to compare"


def rows() -> list[tuple[str, str, str]]:
    """Return the lines of the table."""
    gradient = training_flops(network("resnet18", IMAGE))
    return [
        (
            "CIFAR-10 with features of DINOv2 (tables 2 and 3, figures 2 and 3)",
            "the weights of the backbone are not shipped",
            _features(DINOV2, IMAGES, "images"),
        ),
        ("CIFAR-100 (table 3)", NO_FILE, _features(DINOV2, IMAGES, "images")),
        (
            "FeMNIST (tables 3 and 4), FATS with its schedule there",
            NO_FILE,
            _features(DINOV2, WRITERS, "images of 100 writers"),
        ),
        (
            "Sentiment140 with RoBERTa (tables 2 and 3), FATS with its schedule there",
            NO_FILE,
            _features(ROBERTA, TWEETS, f"texts of {ROBERTA.tokens} tokens"),
        ),
        (
            "CIFAR-10 with all of the network on 40,000 rows, and CIFAR-100, in ACU's main "
            "table, figures 3 and 4",
            "300 epochs of a ResNet take days of a processor; the file of CIFAR-100 is not "
            "shipped",
            "each with ResNet-18 (the text at hand names no network), "
            f"{gradient:.1e} operations a gradient: four trainings of 300 epochs, "
            f"{_time(gradient * TRAININGS)}; six baselines that train all of the network, 75 "
            f"requests, {_time(gradient * BASELINES)}. Of a head on frozen features: minutes, "
            "as on cifar10. The paper has 5,400 s for one retraining",
        ),
        (
            f"ACU's main table on MNIST and debsections, more than {MOST_ROWS:,} rows",
            "most baselines train on all rows at each of 75 requests: left out for time",
            "about an hour of a processor on MNIST and two on debsections: cifar10's seconds, "
            "by the numbers of rows and of the head's weights",
        ),
        ("the ridge paper's figure 1", "it draws the protocol", NOTHING),
        ("ACU's figures 1 and 2", "they draw the problem and the method", NOTHING),
    ]


def render() -> str:
    """Return the section of the page."""
    lines: Sequence[Sequence[str]] = (HEAD, ["---"] * len(HEAD), *rows())
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        f"## What was not measured\n\n{table}\n\n"
        "Times on a GPU are estimates and were not measured: operations over the "
        f"{throughput():.1e} a second that one NVIDIA H100 does in steps of ResNet-18, batches "
        f"of {BATCH}, float32 ([the papers' sizes](unlearning.md#the-papers-sizes)). One "
        f"forward pass of DINOv2 ViT-B/14 at 224 pixels is {DINOV2.operations:.1e} operations, "
        f"one of RoBERTa base {ROBERTA.operations:.1e}, from their published shapes; the "
        "papers give neither the size of the images nor the length of the texts. With features "
        "of the same n, d and c the heads take what the tables here show.\n"
    )


def throughput() -> float:
    """Return the operations a second of ResNet-18's steps on the GPU."""
    found = json.loads(STEPS.read_text())["steps"]
    [step] = [one for one in found if (one["network"], one["batch"]) == ("resnet18", BATCH)]
    return float(step["operations"])


def _features(backbone: Transformer, count: int, unit: str) -> str:
    total = backbone.operations * count
    return (
        f"{count:,} {unit} of {backbone.operations:.1e} operations, {total:.1e} in all: "
        f"{_time(total)}"
    )


def _time(operations: float) -> str:
    """Return how long the GPU would take."""
    minutes = operations / throughput() / 60
    return f"about {minutes:.0f} min" if minutes < 100 else f"about {minutes / 60:.1f} h"
