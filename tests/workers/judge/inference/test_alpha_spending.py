"""The total alpha spent by a stream of requests."""

import pytest

from workers.errors import RefusedError
from workers.judge.inference.intervals import spent


def test_the_first_requests_by_hand() -> None:
    assert spent(0.05, 0) == pytest.approx(0.05 * 0.6079271018540267)
    assert spent(0.05, 1) == pytest.approx(spent(0.05, 0) / 4)
    assert spent(0.05, 9) == pytest.approx(spent(0.05, 0) / 100)


def test_no_stream_spends_more_than_alpha() -> None:
    total = sum(spent(0.05, k) for k in range(20_000))
    assert 0.0499 < total < 0.05


@pytest.mark.parametrize("count", [-1, 1.5, True, "3", None])
def test_what_is_no_count_is_refused(count: object) -> None:
    with pytest.raises(RefusedError):
        spent(0.05, count)  # type: ignore[arg-type]
