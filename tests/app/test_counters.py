"""Counters and histograms: buckets, labels, and no count lost between threads."""

import threading

import pytest

from app.counters import Counter, Histogram


def test_a_counter_counts_by_label() -> None:
    counter = Counter("name", "Meaning.", "problem")
    for slug in ("a", "b", "a"):
        counter.add(slug)
    assert counter.read() == {"a": 2, "b": 1}


def test_what_is_expected_is_there_before_it_happens() -> None:
    counter = Counter("name", "Meaning.", "problem")
    counter.add("a")
    counter.expect(["a", "b"])
    assert counter.read() == {"a": 1, "b": 0}
    histogram = Histogram("name", "Meaning.", (1.0,), "stage")
    histogram.observe(0.5, "verify")
    histogram.expect(["verify", "execute"])
    assert histogram.read() == {"verify": ((1, 0), 0.5), "execute": ((0, 0), 0.0)}


def test_a_bound_belongs_to_its_bucket() -> None:
    """Prometheus's `le` is "at most"."""
    histogram = Histogram("name", "Meaning.", (0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(seconds)
    counts, total = histogram.read()[""]
    assert counts == (2, 2, 1)
    assert total == pytest.approx(8.65)


def test_a_histogram_without_label_is_there_from_the_start() -> None:
    assert Histogram("name", "Meaning.", (1.0,)).read() == {"": ((0, 0), 0.0)}
    assert Histogram("name", "Meaning.", (1.0,), "stage").read() == {}


def test_a_block_that_raises_is_timed() -> None:
    histogram = Histogram("name", "Meaning.", (60.0,), "stage")
    with pytest.raises(KeyError), histogram.timed("verify"):
        raise KeyError
    assert histogram.read()["verify"][0] == (1, 0)


def test_no_count_is_lost_between_threads() -> None:
    counter = Counter("name", "Meaning.", "problem")
    histogram = Histogram("name", "Meaning.", (1.0,))

    def work() -> None:
        for _ in range(2000):
            counter.add("a")
            histogram.observe(0.5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read() == {"a": 8000}
    assert histogram.read()[""] == ((8000, 0), 4000.0)
