"""A call whose answer is lost is not carried out twice by the client's retries."""

import httpx2
import pytest

from lethe.client import UnreachableError
from tests.installation import Installation
from tests.small import MODEL


class Losing(httpx2.BaseTransport):
    """Passes each call on, and loses the answers to those that change something."""

    def __init__(self, inner: httpx2.BaseTransport) -> None:
        self.inner = inner

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = self.inner.handle_request(request)
        if request.method == "POST":
            raise httpx2.ReadTimeout("lost")
        return answer


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_hold_whose_answer_is_lost_is_placed_once(ready: Installation) -> None:
    """Whoever releases the one that they know of would leave the other."""
    with ready.client(transport=Losing(ready.caller.http._transport)) as operator:
        with pytest.raises(UnreachableError, match="may have been done"):
            operator.place_hold(MODEL, "a lawsuit")
        assert len(list(operator.holds())) == 1
