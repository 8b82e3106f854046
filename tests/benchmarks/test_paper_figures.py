"""The quoted figures agree with one another where a table prints both a cost and its ratio."""

import re

import pytest

from benchmarks.paper_figures import figures, footnote, rows_of, tables

RATIO = re.compile(r"(\d\.\d+e\d+) \((\d+\.\d+)×\)")
# As printed, and not what the row's own numbers give: (table, setting, row, column).
MISPRINTS = {
    # Its operations stand in the column of bytes, with a power too many in one of them.
    ("PUF III", "CIFAR-100, Non-IID, ResNet-18, E=10", "PGA", "bytes"),
    ("PUF III", "CIFAR-100, Non-IID, ResNet-18, E=10", "PGA", "FLOPs"),
    ("PUF III", "CIFAR-100, Non-IID, MiT-B0, E=1", "MoDe", "FLOPs"),  # 2.15, printed as 2.2
}


def off() -> set[tuple[str, str, str, str]]:
    """Return the cells whose ratio is not retraining's cost over theirs, within 2 %."""
    found = set()
    for table, settings in tables().items():
        for setting, rows in settings.items():
            for row, cells in rows.items():
                for column, text in cells.items():
                    match = RATIO.fullmatch(text)
                    if match is None:
                        continue
                    whole = RATIO.fullmatch(rows["Retrain"][column])
                    assert whole is not None
                    given = float(match[2])
                    ratio = float(whole[1]) / float(match[1])
                    if abs(given - ratio) > max(0.02 * ratio, 0.0502 if given >= 1 else 0.01):
                        found.add((table, setting, row, column))
    return found


def test_costs_and_their_ratios_agree_but_for_the_papers_misprints() -> None:
    assert off() == MISPRINTS


def test_half_of_one_clients_rows_is_what_tables_operations_say() -> None:
    nine = rows_of("PUF III", "CIFAR-100, IID, ResNet-18, E=1")["Retrain"]["FLOPs"]
    half = rows_of("PUF IV", "CIFAR-100, IID, ResNet-18, E=1")["Retrain"]["FLOPs"]
    found = [RATIO.fullmatch(text) for text in (nine, half)]
    left, stay = (float(match[1]) for match in found if match is not None)
    assert stay / left == pytest.approx(9.5 / 9, rel=0.005)  # of ten clients; half of each: 5/9


def test_a_row_is_one_cell_and_what_is_not_printed_is_a_dash() -> None:
    setting = "CIFAR-10, 10 clients"
    assert figures("HF-KCU 1", setting, "HF-KCU") == (
        "test acc. 71.16; CF 0.38; MIA 0.499; time × 47.75×"
    )
    assert figures("HF-KCU 1", setting, "PUF-Special") == "–"
    assert figures("HF-KCU 1", None, "HF-KCU") == "–"
    assert "table 1, CIFAR-10, 10 clients" in footnote("HF-KCU 1", setting)
    with pytest.raises(KeyError):
        figures("HF-KCU 1", "elsewhere", "HF-KCU")
