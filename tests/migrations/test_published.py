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
    "0002_append_only.py": "b3c51d4d7dd30266d2112c761c700af1f531c3dc2e492b0bf799995f72600302",
    "0003_notices.py": "47fb2ea078585c2bb91baa2642ee0bf8fd172c72b6dbd38fe16b29ace71c6f67",
    "0004_intake.py": "85fed2515a011c6529d11940eded8fc41553ca8cb2ff0f9dc4731fcc4c785db0",
    "0005_witness.py": "6d188aef6de61ededbdd9c922e879aa25912a1be6f6c9133f13a052b4c940289",
    "0006_callbacks.py": "66a9d371d52cfb862ff52b582b1231d0dbd088048ff0eb22a00d2a0bce44a19c",
    "0007_schedule.py": "40be7e4b52b1d00c99a07018d5b1a554baf61a19f9f13eaf30ab1277fd6a9b45",
    "0008_foureyes.py": "94064070f4adb0563a82808bcda1e5245861e0e5f8c0088c9b62ebf86ff74a9a",
    "0009_retention.py": "c9751a3a8a6b970b75871c06291846bbfb7a23a482ff222746e55c4733a0c8cc",
    "0010_importers.py": "2f17cb08f772c6a68cad0726a5b2f79f9e2e31f04346060515ec4678735a63e9",
    "0011_answered.py": "807e510e28daf197ed02d128ce402824da6b7b4ed678c6f79e4b92e5fd12e2a6",
    "0012_quota.py": "412298cf4ede665279a8668e45fbcce570269425c634cb8d642e419e95d41ffd",
}


def test_published_revisions_are_as_they_were() -> None:
    folder = Path(__file__).parents[2] / "migrations" / "versions"
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.glob("0*.py")}
    assert found == PUBLISHED
    assert max(found).startswith(f"{HEAD}_")
