"""Who is tried: every provider by name, and whether it did what it claims."""

HONEST = {
    "exact deletion": "the statistics minus the erased rows, and the head solved again",
    "honest retrain": "trained again on the retained rows only",
}
# What the service runs. Whether they forget is not known beforehand: no target is set for them.
METHODS = {
    "puf-special": "PUF-Special in two guarded cycles, with recovery",
    "hf-kcu": "HF-KCU, corrected, in two guarded cycles, with recovery",
}
CHEATS = {
    "no-op": "does nothing, and publishes the old model as the new version",
    "wrong client": "erases as many rows of another client, and keeps the requested ones",
    "recovery alone": "trains further on the retained rows, without a step that unlearns",
    "relabel": "keeps the rows under wrong labels",
    "noise": "adds noise to the weights and forgets nothing",
    "last layer": "trains only the last layer further on the retained rows",
    "one class loud": "inflates one output of the old model, so that all others look alike",
    "overfit one attack": "tunes the model until one known attack is at chance",
    "overfit all attacks": "gives each forget row the confidence of some unseen row",
    "old version": "publishes an earlier version, which also knew the rows",
    "one ulp": "is correct, then changes one weight by one unit in the last place",
    "forged evidence": "replaces a row, or the rows to be tested, so that all sums agree",
    "dropped record": "erases the requested records, and silently one retained record more",
}
# Counted apart: it forges what every other cheat leaves alone, the rows as they are stored.
STORAGE = {
    "swapped rows": "erases another person, and stores the rows under that person's records",
}
ABOUT = HONEST | METHODS | CHEATS | STORAGE


def is_honest(provider: str) -> bool:
    """Return whether a provider is an honest one. Raises KeyError for an unknown name."""
    return ABOUT[provider] == (HONEST | METHODS).get(provider)
