"""The quoted figures agree with one another where a table prints both a cost and its ratio."""

import re
from pathlib import Path

import pytest

from benchmarks.paper_figures import figures, footnote, rows_of, tables

DOCS = Path(__file__).parents[2] / "docs" / "benchmarks"
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


def test_every_quoted_figure_stands_on_a_page() -> None:
    pages = {name: (DOCS / f"{name}.md").read_text() for name in ("unlearning", "ridge")}
    for table, settings in tables().items():
        page = pages["ridge" if table.startswith(("Ridge", "ACU")) else "unlearning"]
        for setting, rows in settings.items():
            for row, cells in rows.items():
                if not table.startswith(
                    "ACU"
                ):  # its seconds stand in tables of one stream each
                    assert figures(table, setting, row) in page, (table, setting, row)
                elif row != "retrain":  # told as 5,400 s a request
                    assert all(f"| {cell} |" in page for cell in cells.values()), row


PUF = {
    "III": "## PUF, Table III:", "IV": "## PUF, Table IV:", "V": "## PUF, Table V:",
    "VI": "## PUF, Table VI:", "I, II, VII, VIII": "PUF's tables I, II, VII and VIII",
}  # fmt: skip


def test_each_table_and_figure_of_puf_and_hf_kcu_has_its_place_or_the_reason_why_not() -> None:
    page = (DOCS / "unlearning.md").read_text()
    for puf, words in PUF.items():
        assert words in page, puf
    for number in range(1, 10):
        assert re.search(rf"^## HF-KCU, Table {number}: ", page, re.MULTILINE), number
    _, _, why = page.partition("### What was not measured")
    why = why.partition("### ")[0]
    for words in ("PUF's figure 1 |", "figures 2 and 3 |", "HF-KCU's figure 1 |"):
        assert words in why, words
    drawn = (DOCS / "puf-figures.md").read_text()
    assert "## Figures 4 and 5: cifar" in drawn
    assert "## Figure 6: " in drawn
    assert (DOCS / "hf-kcu-figure.md").read_text().startswith("# HF-KCU's figure 2")


def test_the_papers_figures_are_the_last_column_of_each_of_their_tables() -> None:
    for name, title in (("unlearning", r"(PUF|HF-KCU), Table"), ("ridge", r"Table [345]\b")):
        parts = re.split(r"^## ", (DOCS / f"{name}.md").read_text(), flags=re.MULTILINE)
        found = [part for part in parts if re.match(title, part)]
        assert len(found) >= 3
        for part in found:
            heads = re.findall(r"^(\|.*\|)\n\| ---", part, re.MULTILINE)
            assert heads[0].endswith("| paper |"), part[:60]
            assert name == "ridge" or all(head.endswith("| paper |") for head in heads)
