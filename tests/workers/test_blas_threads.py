import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from workers import blas_threads
from workers.blas_threads import threads_for


def blas() -> list[int]:
    assert np.ones(1) @ np.ones(1) == 1  # NumPy's BLAS is loaded
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_small_calls_get_one_thread_and_the_limit_ends_with_them() -> None:
    with threadpool_limits(2):
        before = blas()
        with threads_for(blas_threads.PARALLEL_FROM - 1):
            assert set(blas()) == {1}
        assert blas() == before
        with threads_for(blas_threads.PARALLEL_FROM):
            assert blas() == before
