"""The sentence of a guarantee describes this training only."""

from workers.families.network.wording import guarantee


def test_missing_answers_are_named_with_their_number_and_only_where_there_were_some() -> None:
    whole = guarantee("exact-retrained", {}).statement
    assert "the training was repeated. Not tested: copies" in whole
    assert "missing" not in whole
    some = guarantee("exact-retrained", {}, missing=3).statement
    assert (
        "the training was repeated, without the answers of clients that were missing in it "
        "(3: retrain.missing). Not tested: "
    ) in some
