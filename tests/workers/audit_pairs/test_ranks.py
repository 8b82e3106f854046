"""Every record that was ever a target is found from the stored ones."""

import random

from workers.audit_pairs.ranks import first, purpose, were_targets


def test_every_target_of_any_time_is_found_when_it_leaves() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        stored: list[str] = []  # in the order of arrival
        targets: set[str] = set()
        found: set[str] = set()
        left: set[str] = set()
        for number in range(120):
            if stored and rng.random() < 0.3:
                leaving = set(rng.sample(stored, min(len(stored), rng.randint(1, 3))))
                found |= were_targets(seed, 3, stored, leaving)
                stored = [record for record in stored if record not in leaving]
                left |= leaving
            else:
                stored += [f"{number}.{part}" for part in range(rng.randint(1, 4))]
            targets |= first(purpose(seed), stored, 3)
        assert targets & left <= found
        assert len(found) < len(left) / 2  # and most that never were are not included


def test_who_ranks_behind_enough_others_of_before_never_was_one() -> None:
    records = [f"r{number}" for number in range(500)]
    chosen = first(purpose(9), records, 2)
    found = were_targets(9, 2, records, set(records))
    assert chosen <= found
    assert len(found) < 30  # 2 + 2 ln(500 / 2) on average
    assert were_targets(9, 2, records, set(records) - found) == set()
