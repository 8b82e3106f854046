"""A revision that was published is never edited: a change is a revision of its own."""

from hashlib import sha256
from pathlib import Path

from migrations import HEAD

# A database names the revision that it has run, not its text: after an edit, one that ran the
# old text passes for one that ran the new, and is never upgraded. 0009 was edited so, when it
# got its second table, and 0008 when it came to refuse what it had dropped. Add a line for a
# new revision; never change one.
PUBLISHED = {
    "0001_tables.py": "7936b4aa6e772fb29b587756eee6e82b28df4c34804f26e8a8ba31c6802069e2",
    "0002_append_only.py": "bbb2f4613a84dbf5486a1d24cefb77660d22f2b904bd6c52309aba0ba2da1688",
    "0003_notices.py": "47fb2ea078585c2bb91baa2642ee0bf8fd172c72b6dbd38fe16b29ace71c6f67",
    "0004_intake.py": "85fed2515a011c6529d11940eded8fc41553ca8cb2ff0f9dc4731fcc4c785db0",
    "0005_witness.py": "3f938b610ff4a0d8a18e2ca5bf734d7e28c7b59d99cbc7c968ed27e0f1727927",
    "0006_callbacks.py": "66a9d371d52cfb862ff52b582b1231d0dbd088048ff0eb22a00d2a0bce44a19c",
    "0007_schedule.py": "40be7e4b52b1d00c99a07018d5b1a554baf61a19f9f13eaf30ab1277fd6a9b45",
    "0008_foureyes.py": "84e93a252a7ed801a14bfae0035ebd57516e05e2b24c13243439fa441455f184",
    "0009_retention.py": "5997f2ef8f1cc375ad5aa8b4557d09a9c482dadcfe632eca72a1f799e84ea01a",
    "0010_importers.py": "949643abf9fae7671cb8e22de05b21dbcfd30bcbca61dcc0efe74213e6c338c1",
    "0011_answered.py": "ee6127cfc4584b0ba1241d26d5555c5e6c8336293eab42cea2736ba231d085e8",
    "0012_quota.py": "412298cf4ede665279a8668e45fbcce570269425c634cb8d642e419e95d41ffd",
    "0013_delivered_state.py": "ae8aa3bb0bfb7d65555e991bcdac6c7af5e65eac9b01e80417c0f670da0574a6",
    "0014_step.py": "22537b9b56d9450dfa0fdbca827f6c8473582e0dce5bc6d9a297f6c0fd220921",
    "0015_history.py": "7505c3a880c3cfea5f7685775b358e2c7d82ee8efa0b72b0da5c8804f9ab3f03",
}


def test_published_revisions_are_as_they_were() -> None:
    folder = Path(__file__).parents[2] / "migrations" / "versions"
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.glob("0*.py")}
    assert found == PUBLISHED
    assert max(found).startswith(f"{HEAD}_")
