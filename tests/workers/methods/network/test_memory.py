import pytest
import torch

from workers.methods.network.recovery import OutOfMemoryError, named_out_of_memory


def test_torch_itself_runs_out_of_memory_by_that_name() -> None:
    with pytest.raises(OutOfMemoryError, match="lower batch_size"), named_out_of_memory():
        torch.empty(1 << 60)


def test_a_gpu_does_too() -> None:
    with pytest.raises(OutOfMemoryError), named_out_of_memory():
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_another_error_keeps_its_name() -> None:
    with pytest.raises(RuntimeError, match="another kind"), named_out_of_memory():
        raise RuntimeError("a bug of another kind")
