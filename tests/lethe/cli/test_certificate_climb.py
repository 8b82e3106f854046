"""How a request came to the certified method: each rung on lines of its own, and why."""

from dataclasses import replace

import pytest

from lethe.certificates.climb import RungPart, write_climb
from lethe.certificates.errors import ShapeError
from lethe.certificates.statement import CheckPart, Predicate
from lethe.cli.certificate_climb import climb_lines
from tests.lethe.certificates.build import contents
from tests.lethe.certificates.climbs import ATTACK, LINE, PURGE, SAMPLES, SKIPPED, UNDECIDED


def said(**parameters: str) -> Predicate:
    predicate = contents()[1]
    return replace(
        predicate, method=replace(predicate.method, id="retrain", parameters=parameters)
    )


def lines(*rungs: RungPart) -> list[tuple[str, str]]:
    return list(climb_lines(said(**write_climb(rungs))))


def test_each_rung_says_what_was_found_on_what_and_what_was_asked_for() -> None:
    assert lines(UNDECIDED, SKIPPED) == [
        (
            "rung 1",
            "puf-special: INCONCLUSIVE, so it was not certified: there were too few rows to "
            "tell whether it had erased enough",
        ),
        ("", "  not shown  samples"),
        ("", "    found   45 pairs, testing 18.4% of 245 forget rows"),
        ("", "            914 retained"),
        ("", "            power: AUC 0.0000"),
        ("", "    wanted  at least 310 pairs; power 0.8"),
        (
            "",
            "            that is: there must be enough erased rows, each beside a like row that "
            "the model never saw, for a trace of the stated size to be noticed",
        ),
        ("", "  not run  attacks: the samples do not allow it"),
        ("", "  passed  purge"),
        ("rung 2", "hf-kcu: skipped, over the budget"),
        ("rung 3", "retrain: PASS, the certified one (2 checks)"),
    ]


def test_a_refuted_rung_says_by_which_check_on_how_many_rows() -> None:
    enough = replace(SAMPLES, passed=True)
    silos = CheckPart(
        4, "silos-answered", f"1 of 1 silos; keys: 0 {'ab' * 32}", None, "all", True
    )
    told = lines(RungPart("puf", "FAIL", None, (PURGE, enough, ATTACK, silos)))
    assert told[0][1] == "puf: FAIL, so it was not certified: a check refuted it"
    texts = [text for _, text in told]
    assert "    found   0.7012 (45 forget, 45 unseen rows), interval 0.61 to 0.79" in texts
    assert "    wanted  between 0.4 and 0.6" in texts
    assert any("about as good as guessing" in text for text in texts)
    assert f"  tested on  {SAMPLES.value}" in texts
    assert f"  signed  {silos.value}" in texts
    assert "  passed  purge, samples, silos-answered" in texts


@pytest.mark.parametrize(
    ("rung", "words"),
    [
        ("puf: FAIL (yeom:auc: 0.7)", "a check refuted it"),
        ("puf: INCONCLUSIVE (samples: 9; yeom:auc: ?)", "there were too few rows to tell"),
        ("puf: INCONCLUSIVE (control:yeom: 0.5)", "the checks could not tell"),
        ("puf: PASS ()", "not certified: the log had something against it"),
        ("hf-kcu: not judged by itself", "hf-kcu: not judged by itself"),
        ("hf-kcu: NoSafeStep", "hf-kcu: NoSafeStep"),
    ],
)
def test_an_old_certificate_is_told_from_its_line(rung: str, words: str) -> None:
    (first, text), *_, last = climb_lines(said(climb=rung))
    assert (first, last[0]) == ("rung 1", "rung 2")
    assert words in text


def test_the_parts_of_an_old_line_stand_below_each_other() -> None:
    texts = [text for _, text in climb_lines(said(climb=LINE))]
    assert texts[1:4] == [
        "  samples: 45 pairs, testing 18.4% of 245 forget rows",
        "  914 retained",
        "  power: AUC 0.0000",
    ]


def test_a_rung_of_the_ladder_is_named_with_its_settings() -> None:
    told = said(**write_climb([SKIPPED]), rung="puf-special(guard.rise=2)")
    assert list(climb_lines(told))[-1][1].startswith("puf-special(guard.rise=2): PASS")


def test_what_was_asked_for_and_certified_climbed_nothing() -> None:
    assert list(climb_lines(said())) == []


def test_a_climb_told_in_two_ways_is_not_shown() -> None:
    with pytest.raises(ShapeError):
        list(climb_lines(said(**{**write_climb([UNDECIDED]), "climb": "puf: NoSafeStep"})))
