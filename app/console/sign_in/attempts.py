"""Limits failed sign-ins of each client: by token, and at the organisation's provider."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from app.api.http.attempts import Bound, Limits, client_of, of_client
from lethe.errors import LetheError

FAILED = Bound("failed sign-ins", 20, 900.0)


@contextmanager
def counted(request: Request, failure: type[LetheError]) -> Iterator[None]:
    """Refuse the block to a client that failed too often; count it if it ends in `failure`.

    Raises AttemptsError if it did, without reading its input.
    """
    limits: Limits = request.app.state.sign_ins
    client = of_client(FAILED, client_of(request))
    limits.check(*client)
    try:
        yield
    except failure:
        limits.take(*client)
        raise
