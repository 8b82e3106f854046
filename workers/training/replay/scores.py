"""A published model's outputs on rows, the input of attacks and distances."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from workers.errors import ArtifactError
from workers.training.fedavg.base import ClientData, check_data
from workers.training.fedavg.evaluate import logits_of
from workers.training.networks.files import decode_weights
from workers.training.networks.registry import Network

Scores = NDArray[np.float64]
Scorer = Callable[[ClientData], Scores]


def scorer(file: bytes, network: Network) -> Scorer:
    """Return a function from rows to a model file's logits (n, classes) float64.

    It raises RefusedError for rows that are not the network's. Raises ArtifactError if the
    file is not a finite model of this network.
    """
    named, weights = decode_weights(file)
    if named != network:
        raise ArtifactError("the model file is of another network than registered")

    def scores(data: ClientData) -> Scores:
        check_data(network, data)
        logits = logits_of(named, weights, data.inputs, threads=1)
        found: Scores = logits.double().numpy()
        return found

    return scores
