"""Random crop and horizontal flip, from a stream of its own (PUF, section V-A)."""

import numpy as np
import torch
from torch.nn import functional

MARGIN = 4  # pixels of zeros on each side before the crop, as for CIFAR since He et al. 2016


def crop_flip(images: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Return images (n, c, h, w), each shifted by up to 4 pixels and perhaps mirrored."""
    n, _, height, width = images.shape
    padded = functional.pad(images, (MARGIN, MARGIN, MARGIN, MARGIN))
    top, left = rng.integers(0, 2 * MARGIN + 1, (2, n))
    mirror = rng.random(n) < 0.5
    rows = top[:, None] + np.arange(height)
    columns = left[:, None] + np.where(
        mirror[:, None], np.arange(width)[::-1], np.arange(width)
    )
    at = [torch.from_numpy(index).to(images.device) for index in (rows, columns)]
    picked = padded.permute(0, 2, 3, 1)[
        torch.arange(n, device=images.device)[:, None, None],
        at[0][:, :, None],
        at[1][:, None, :],
    ]
    return picked.permute(0, 3, 1, 2).contiguous()
