"""The federation of images that `lethe demo --data` registers, trained without a service."""

import io
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.earned.measure import TrainedFederation, make_world
from workers.data.image_npz import load_image_npz
from workers.demo.network import IMAGES, drawn, prepare
from workers.training.fedavg.client.data import tensors_of

# The control: as many rounds of recovery as the demonstrated methods may use, and no step.
NATURAL = {"recovery": {"rounds": 4, "epochs": 1.0}}


def images_world(file: Path) -> TrainedFederation:
    """Return the trained federation of a file's images; the largest client is to be forgotten.

    Raises ModelError: the file cannot be used.
    """
    images = drawn(load_image_npz(file), IMAGES.rows)
    prepared = prepare(images, "puf-special", IMAGES, IMAGES.rounds)
    settings = {**prepared.manifest["settings"], "natural": NATURAL}
    with np.load(io.BytesIO(prepared.npz), allow_pickle=False) as arrays:
        sent = {name: arrays[name] for name in ("labels", "clients", "records")}
        sent["labels"] = sent["labels"].astype(np.int64)
        sent["inputs"] = tensors_of(arrays["inputs"]).numpy()
    [(largest, _)] = Counter(prepared.clients).most_common(1)
    return make_world({**prepared.manifest, "settings": settings}, sent, largest)
