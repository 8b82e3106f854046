"""scikit-learn's bundled handwritten digits, dealt to clients: data that is always available.

1,797 images of 8 x 8 pixels with values 0 to 16 (UCI, Alpaydin and Kaynak 1998).
"""

import numpy as np
from sklearn.datasets import load_digits as bundled

from workers.data.federation import Federation, hold_out, record_ids
from workers.data.partition import dirichlet


def load_digits(clients: int = 100, alpha: float = 0.5, seed: int = 0) -> Federation:
    """Return the digits as a federation of `clients`, a tenth held out.

    Every client keeps at least one row to train on. The same arguments give the same
    federation. Raises DatasetError as `dirichlet`.
    """
    data = bundled()
    labels = data.target.astype(np.int64)
    owners = dirichlet(labels, clients, alpha, seed)
    names = np.array([f"client-{owner:03d}" for owner in owners])
    return Federation(
        features=data.data.astype(np.float32),
        labels=labels,
        clients=names,
        label_names=tuple(str(name) for name in data.target_names),
        is_test=hold_out(names, seed + 1),
        records=record_ids(len(labels)),
    )
