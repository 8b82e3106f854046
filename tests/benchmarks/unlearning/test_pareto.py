"""The front by hand, and names in the figure that nobody has to guess at."""

from itertools import combinations
from math import nan
from pathlib import Path

from matplotlib.text import Text

from benchmarks.unlearning import pareto
from benchmarks.unlearning.contenders import AGAIN, ORIGINAL, RETRAIN
from benchmarks.unlearning.pareto import Place, front
from benchmarks.unlearning.plots import draw
from benchmarks.unlearning.records import Record, Records
from benchmarks.unlearning.summary import of

# What doing nothing leaves: 30 points.
PLACES = [
    Place("worse than nothing", 0.005, 31.0, nan, whole=True),
    Place("cheap", 0.01, 20.0, 5.0, whole=True),
    Place("beaten", 0.02, 20.0, 5.0, whole=True),
    Place("not in all seeds", 0.02, 1.0, nan, whole=False),
    Place("dear", 0.05, 19.0, 5.0, whole=True),
    Place("as dear but further", 0.05, 19.5, 5.0, whole=True),
    Place(RETRAIN, 1.0, 0.0, 0.0, whole=True),
    Place("dearer than retraining", 2.0, 0.0, 0.0, whole=True),
]


def test_the_front_is_who_nobody_beats() -> None:
    found = [place.label for place in front(PLACES, 30.0)]
    assert found == ["cheap", "dear", RETRAIN]
    assert [place.label for place in front(PLACES[::-1], 30.0)] == found
    assert front(PLACES, 32.0)[0].label == "worse than nothing"


def measured(**own: tuple[float, float]) -> Records:
    """Two seeds; label: (forget accuracy, operations). The retrained model: 0.5, 100."""
    lines = {ORIGINAL: (0.8, 110.0), RETRAIN: (0.5, 100.0), **own}
    return {
        ("x", seed, label): Record(
            "x", seed, label, "p", {"forget": forget, "test": 0.7}, {"flops": flops}
        )
        for seed in (0, 1)
        for label, (forget, flops) in lines.items()
    }


def test_the_front_is_told_by_name() -> None:
    records = measured(**{"natural": (0.7, 3.0), "hf-kcu": (0.55, 5.0), "pga": (0.9, 1.0)})
    records |= measured(**{AGAIN: (0.52, 100.0), "hf-kcu newton": (0.5, 1.0)})
    del records["x", 1, "natural"]
    text = pareto.render(of(records, "x"))
    # PGA is further than nothing.
    assert "On the front, cheapest first: HF-KCU, guarded. " in text
    assert "| HF-KCU, guarded | 20.0× | 5.0 ± 0.0 | 0.0 ± 0.0 | 70.0 ± 0.0 |" in text
    assert text.endswith("Not compared, because some seed has no result: Natural.\n")
    assert "newton" not in text  # a variant: tables 4 and 5 have it


def test_no_name_lies_on_another(tmp_path: Path) -> None:
    crowd = [
        "natural", "puf-special", "puf-regular", "hf-kcu", "fed-eraser", "pga", "mode", "not",
        "fed-au", "naive-ga", "neg-grad", "scrub", "sisa", "fats", "finetune", "exact-fun",
    ]  # fmt: skip
    # Half of them on one point, half close together.
    places = {
        label: (0.7 + 0.002 * max(n - 8, 0), 10.0 + max(n - 8, 0) / 50)
        for n, label in enumerate(crowd)
    }
    notes = draw(of(measured(**places), "x"), "x", tmp_path / "x.png")
    figure = notes[0].get_figure(root=True)
    assert figure is not None
    boxes = [Text.get_window_extent(note) for note in notes]
    assert len(boxes) == len(crowd) + 1
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    room = figure.bbox
    assert all(room.x0 <= box.x0 and box.x1 <= room.x1 for box in boxes)
    assert all(room.y0 <= box.y0 and box.y1 <= room.y1 for box in boxes)
