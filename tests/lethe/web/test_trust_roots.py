"""Each test of trust roots, with the verifier in JavaScript beside the one in Python."""

from collections.abc import Iterator
from typing import Any

import pytest

from lethe.certificates.trust_root import TrustRoot, TrustRootError, parse_trust_root
from lethe.certificates.verify import Verdict
from tests.lethe.certificates import test_trust_root
from tests.lethe.certificates.build import Certified
from tests.lethe.certificates.test_trust_root import *  # noqa: F403
from tests.lethe.web.second import RefusedError, ask, base64, needs_node, verify_both

pytestmark = needs_node


def told_by_both(certified: Certified, root: bytes) -> Verdict:
    return verify_both(certified.bundle, trust_root=root)


def parse_both(data: bytes, *log: Any) -> TrustRoot:
    """Return what the first reads; the second reads the same, and refuses what it refuses."""
    found: TrustRoot | None = None
    try:
        found = parse_trust_root(data)
    except TrustRootError:
        with pytest.raises(RefusedError):
            ask("trustRoot", data=base64(data))
    else:
        keyids = [one.keyid for one in found.issuers.keys]
        made = found.made_at.isoformat().replace("+00:00", "Z")  # %Y does not pad the year 26
        wanted = [
            [one.key_id.hex() for one in found.log.verifiers],
            keyids,
            str(found.issuers.size),
            made,
        ]
        assert ask("trustRoot", data=base64(data)) == wanted
    return parse_trust_root(data, *log)


@pytest.fixture(autouse=True, scope="module")
def _second() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_trust_root, "told", told_by_both)
        patch.setattr(test_trust_root, "parse_trust_root", parse_both)
        yield
