"""The demonstration's registration for certified removal: a small head and its noise."""

from math import ceil, sqrt
from pathlib import Path
from typing import Any

from workers.data.images import LabelledImages
from workers.registration.network import NetworkOptions, NetworkRegistration
from workers.registration.network_source import Source, prepare
from workers.training.fedavg.noisy import LARGEST

HEADS = METHOD, NOISY = "certified-newton", "noisy-finetuning"
# Less weight decay gives a looser bound of the optimum, which needs more noise to hide.
WEIGHT_DECAY = 0.01
NOISE = {"sigma": 0.005, "epsilon": 1.0, "delta": 1e-5, "releases": 4, "tolerance": 0.05}
HIDDEN = 32  # units of the perceptron: 2,410 parameters over 64 features and 10 classes
FINETUNING = {"epsilon": 1.0, "delta": 1e-5, "releases": 2, "recovery_rounds": 8}


def of_features(data: Path, training: dict[str, Any]) -> NetworkRegistration:
    """Return the registration of a perceptron over a file's features, as wide as allowed.

    data: as for a ridge head, an .npz or a table. Raises ModelError for other files.
    """
    source = Source(data, form="table")
    prepared = prepare(source, ref="demo", options=_perceptron(training))
    shape = prepared.manifest["network"]["parameters"]
    # (features + 1) * hidden + (hidden + 1) * classes parameters at most
    room = (LARGEST - shape["classes"]) // (shape["features"] + 1 + shape["classes"])
    shape["hidden"] = max(1, min(HIDDEN, room))
    return prepared


def _perceptron(training: dict[str, Any]) -> NetworkOptions:
    return NetworkOptions(
        network="mlp",
        shape={"hidden": HIDDEN},
        method=NOISY,
        training=training,
        settings={NOISY: FINETUNING},
    )


def options(method: str, images: LabelledImages, training: dict[str, Any]) -> NetworkOptions:
    """Return the registration of a head over pixels in -1…1, for a method with noise."""
    if method == NOISY:
        return _perceptron(training)
    pixels = images.images[0].size
    longest = ceil(10 * sqrt(1 + pixels)) / 10
    local = {**training["local"], "weight_decay": WEIGHT_DECAY}
    return NetworkOptions(
        network="logistic",
        method=METHOD,
        training={**training, "local": local},
        settings={METHOD: {"row_norm": longest, **NOISE}},
    )
