"""What a published data set becomes: the arrays that `lethe` reads, by name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.sentiment140 import LABEL_NAMES, Tweets
from workers.data.images import LabelledImages
from workers.data.owners import Ownership, assign

Arrays = dict[str, NDArray[Any]]


def image_arrays(images: LabelledImages) -> Arrays:
    """Return what `workers.data.image_npz` reads: the published test set stays apart.

    Rows keep their order, so that record-17 is the same row before and after.
    """
    found: Arrays = {"label_names": np.array(images.label_names)}
    for name, rows in (("train", ~images.is_test), ("test", images.is_test)):
        if rows.any():
            found[f"{name}_images"] = images.images[rows]
            found[f"{name}_labels"] = images.labels[rows]
            if images.clients is not None:
                found[f"{name}_clients"] = images.clients[rows]
    return found


def text_arrays(tweets: Tweets, owners: Ownership) -> Arrays:
    """Return what `lethe features extract` reads: the tweets of the users that count.

    A record's id is its number among the tweets of the file that are not neutral.
    Raises DatasetError as `assign`.
    """
    rows, clients = assign(tweets.clients, tweets.labels, owners)
    return {
        # The longest text sets the width of all: those left out must not be among them.
        "texts": np.array([tweets.texts[row] for row in rows.tolist()], dtype=np.str_),
        "labels": tweets.labels[rows],
        "clients": clients,
        "records": np.array([f"record-{row:07d}" for row in rows.tolist()]),
        "label_names": np.array(LABEL_NAMES),
    }
