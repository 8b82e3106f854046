"""What the demonstration registers for certified removal: a logistic head and its noise."""

from math import ceil, sqrt
from typing import Any

from workers.data.images import LabelledImages
from workers.registration.network import NetworkOptions

METHOD = "certified-newton"
# With less weight decay the optimum is known less closely and needs more noise to hide that.
WEIGHT_DECAY = 0.01
NOISE = {"sigma": 0.005, "epsilon": 1.0, "delta": 1e-5, "releases": 4, "tolerance": 0.05}


def options(images: LabelledImages, training: dict[str, Any]) -> NetworkOptions:
    """Return the registration of a logistic head over pixels in -1…1 and their bias."""
    pixels = images.images[0].size
    longest = ceil(10 * sqrt(1 + pixels)) / 10
    local = {**training["local"], "weight_decay": WEIGHT_DECAY}
    return NetworkOptions(
        network="logistic",
        method=METHOD,
        training={**training, "local": local},
        settings={METHOD: {"row_norm": longest, **NOISE}},
    )
