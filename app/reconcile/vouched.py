"""Whether the log vouches for a model's last version: by a certificate, or as learned.

An erasure's version that was refuted or never judged may have any rows: its digests are only a
worker's claim. In the log, the entries of the requests executed in a version directly follow
the version's entry, in the same transaction, so the log alone tells which they are.
"""

from app.ledger.sequencer import Ledger
from app.reconcile.judgement import CERTIFIED, ESCALATED, EXECUTED
from app.reconcile.logged_versions import VERSION
from app.reconcile.model_events import KIND, REQUEST, signed_leaves
from lethe.log.entries import Leaf, parse_leaf

# The entries that follow a version in its transaction if no erasure made it.
LEARNED = ("contribution.learned", "model.released")


def vouched_version(ledger: Ledger, ref: str) -> Leaf | None:
    """Return the log's last version of a model, None if nothing vouches for it.

    All leaves are read and hashed. Raises as `signed_leaves`.
    """
    entries = dict(signed_leaves(ledger, lambda data: KIND in data or REQUEST in data))
    leaves = {index: parse_leaf(data) for index, data in entries.items()}
    own = [index for index, leaf in leaves.items() if (leaf.event, leaf.ref) == (VERSION, ref)]
    if not own:
        return None
    last = own[-1]
    executed: set[str | None] = set()
    index = last + 1
    while (leaf := leaves.get(index)) is not None:
        index += 1
        if leaf.event == EXECUTED:
            executed.add(leaf.ref)
        elif leaf.event == ESCALATED or leaf.ref == ref:
            if leaf.event in LEARNED and not executed:
                return leaves[last]
        else:
            break
    certified = {
        leaf.ref for index, leaf in leaves.items() if index > last and leaf.event == CERTIFIED
    }
    return leaves[last] if executed and executed <= certified else None
