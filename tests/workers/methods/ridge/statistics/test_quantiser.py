import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.errors import RefusedError
from workers.methods.ridge.statistics.quantiser import Quantiser, calibrate, largest_code

STEPS = st.integers(-160, 160)


@given(st.lists(st.floats(-1e38, 1e38), min_size=1, max_size=20), STEPS, st.integers(8, 16))
@settings(deadline=None)
def test_a_code_is_the_nearest_multiple_or_the_clip(
    values: list[float], step: int, bits: int
) -> None:
    features = np.array(values)[:, None]
    codes, saturated = Quantiser((step,), bits).quantise(features)
    q_max = 2 ** (bits - 1) - 1
    nearest = [round(value * 2.0**-step) for value in values]  # Python rounds half to even
    assert codes[:, 0].tolist() == [max(-q_max, min(q_max, code)) for code in nearest]
    assert saturated == sum(abs(code) > q_max for code in nearest)
    assert codes.dtype == np.int16


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_code_does_not_depend_on_the_float_type(dtype: type[np.floating]) -> None:
    features = np.array([[0.5, -0.25], [1.5, 3.0]], dtype=dtype)
    codes, saturated = Quantiser((-4, -4), 8).quantise(features)
    assert codes.tolist() == [[8, -4], [24, 48]]
    assert saturated == 0


def test_halves_go_to_even_codes() -> None:
    codes, _ = Quantiser((0,)).quantise(np.array([[0.5], [1.5], [-0.5], [-2.5]]))
    assert codes[:, 0].tolist() == [0, 2, 0, -2]


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.random.default_rng(0).normal(size=(50, 3))
    quantiser = calibrate(features)
    whole = quantiser.quantise(features)
    monkeypatch.setattr("workers.methods.ridge.statistics.quantiser.BLOCK_ROWS", 7)
    parts = quantiser.quantise(features)
    assert np.array_equal(whole[0], parts[0])
    assert whole[1] == parts[1]


def test_a_float64_beyond_every_step_saturates() -> None:
    codes, saturated = Quantiser((-160,)).quantise(np.array([[1e300], [-1e300]]))
    assert codes[:, 0].tolist() == [32767, -32767]
    assert saturated == 2


@given(
    st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=6),
    st.integers(8, 16),
    st.sampled_from([1.0, 2.0, 3.5]),
)
@settings(deadline=None)
def test_calibration_leaves_headroom_and_no_coarser_than_needed(
    peaks: list[float], bits: int, headroom: float
) -> None:
    public = np.array([peaks, [-peak / 3 for peak in peaks]])
    quantiser = calibrate(public, bits, headroom)
    for peak, step in zip(peaks, quantiser.exponents, strict=True):
        room = largest_code(bits) / headroom
        assert peak <= room * 2.0**step
        assert peak > room * 2.0 ** (step - 1)


def test_a_sleeping_column_gets_the_widest_step() -> None:
    public = np.array([[0.0, 1.0, 8.0], [0.0, 0.5, -2.0]])
    steps = calibrate(public).exponents
    assert steps[0] == steps[2] > steps[1]
    assert calibrate(np.zeros((2, 2))).exponents == (0, 0)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([[NAN, 0.0]], "NaN or infinity"),
        ([[0.0, INF]], "NaN or infinity"),
        ([[0.0]], "must have 2 columns"),
        ([0.0, 0.0], "must have 2 columns"),
    ],
    ids=["nan", "infinity", "one column", "a vector"],
)
def test_odd_features_are_refused(features: list[float], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        Quantiser((0, 0)).quantise(np.array(features))


@pytest.mark.parametrize(
    ("exponents", "bits", "message"),
    [
        ((0,), 7, "choose 8 to 16"),
        ((0,), 17, "choose 8 to 16"),
        ((), 16, "at least one"),
        ((161,), 16, "rescale"),
        ((0, -161), 16, "rescale"),
    ],
)
def test_odd_quantisers_are_refused(
    exponents: tuple[int, ...], bits: int, message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        Quantiser(exponents, bits)


@pytest.mark.parametrize(
    ("public", "bits", "headroom", "message"),
    [
        (np.array([[NAN]]), 16, 2.0, "NaN or infinity"),
        (np.empty((0, 3)), 16, 2.0, "at least one public row"),
        (np.empty((3, 0)), 16, 2.0, "at least one public row"),
        (np.ones((1, 1)), 16, 0.5, "headroom"),
        (np.ones((1, 1)), 16, NAN, "headroom"),
        (np.ones((1, 1)), 17, 2.0, "choose 8 to 16"),
        (np.full((1, 1), 1e-200), 16, 2.0, "rescale"),
    ],
)
def test_odd_calibrations_are_refused(
    public: np.ndarray, bits: int, headroom: float, message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        calibrate(public, bits, headroom)
