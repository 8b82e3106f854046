"""scikit-learn's bundled digits as 8 x 8 images: data that is always available."""

import numpy as np
from sklearn.datasets import load_digits as bundled

from workers.data.images import LabelledImages

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
