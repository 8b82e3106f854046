"""scikit-learn's bundled handwritten digits, dealt to clients: data that is always available.

1,797 images of 8 x 8 pixels with values 0 to 16 (UCI, Alpaydin and Kaynak 1998).
"""

import numpy as np
from sklearn.datasets import load_digits as bundled

from workers.data.federation import Federation, hold_out, record_ids
from workers.data.images import LabelledImages
from workers.data.partition import dirichlet


def load_digits(clients: int = 100, seed: int = 0) -> Federation:
    """Return the digits as a federation of `clients`, a tenth held out.

    Every client keeps at least one row to train on. The same arguments give the same
    federation. Raises DatasetError as `dirichlet`.
    """
    data = bundled()
    labels = data.target.astype(np.int64)
    owners = dirichlet(labels, clients, 0.5, seed)
    names = np.array([f"client-{owner:03d}" for owner in owners])
    return Federation(
        features=data.data.astype(np.float32),
        labels=labels,
        clients=names,
        label_names=tuple(str(name) for name in data.target_names),
        is_test=hold_out(names, seed + 1),
        records=record_ids(len(labels)),
    )


TESTED = 5  # every fifth row is held out: 360 of 1,797


def load_digit_images() -> LabelledImages:
    """Return 1,797 images (8, 8, 1), their values 0 to 16 spread over 0 to 240."""
    data = bundled()
    images = (data.images * 15).astype(np.uint8)[..., None]
    return LabelledImages(
        images=images,
        labels=data.target.astype(np.int64),
        label_names=tuple(str(name) for name in data.target_names),
        is_test=np.arange(len(images)) % TESTED == 0,
    )
