"""Runs an extractor's network: on the CPU, in float32, with the same bits each time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from workers.data.extractors.base import ExtractorError, Features, Inputs, check_features


@contextmanager
def frozen() -> Iterator[None]:
    """Run torch without gradients and with deterministic algorithms only."""
    # Not `use_deterministic_algorithms`: it imports torch's compiler, which takes each
    # process 2 s.
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_deterministic_debug_mode(before)


def in_batches(
    run: Callable[[torch.Tensor], torch.Tensor], inputs: Inputs, size: int, width: int
) -> Features:
    """Return features (n, width) float32 of `inputs` (n, ...) float32, `size` at a time.

    The last batch is padded with its first input: products of one shape round alike, so an
    input's features do not depend on the number of inputs. Raises ExtractorError if the
    network rejects the inputs or returns NaN.
    """
    features = np.empty((len(inputs), width), dtype=np.float32)
    batch = np.empty((size, *inputs.shape[1:]), dtype=np.float32)
    with frozen():
        for start in range(0, len(inputs), size):
            part = inputs[start : start + size]
            batch[: len(part)] = part
            batch[len(part) :] = part[0]
            try:
                found = run(torch.from_numpy(batch)).numpy()
            except RuntimeError as error:
                raise ExtractorError(
                    "the extractor's network cannot take inputs of this shape: check the "
                    "extractor's name and the size of the inputs"
                ) from error
            whole = check_features(found, size, width)
            features[start : start + size] = whole[: len(part)]
    return features
