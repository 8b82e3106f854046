"""The typed SDK: `Client` and `AsyncClient` for a Lethe service."""

from app.client.answers import (
    HistoryEvent,
    LogReceipt,
    Receipt,
    RequestStatus,
    RequestSummary,
)
from app.client.asynchronous import AsyncClient
from app.client.errors import (
    AnswerError,
    ClientError,
    CredentialsError,
    ProblemError,
    ReceiptError,
    ScopeError,
    UnreachableError,
    WaitTimeoutError,
)
from app.client.receipts import verify_receipt
from app.client.retry import RetryPolicy
from app.client.sync import Client

__all__ = [
    "AnswerError",
    "AsyncClient",
    "Client",
    "ClientError",
    "CredentialsError",
    "HistoryEvent",
    "LogReceipt",
    "ProblemError",
    "Receipt",
    "ReceiptError",
    "RequestStatus",
    "RequestSummary",
    "RetryPolicy",
    "ScopeError",
    "UnreachableError",
    "WaitTimeoutError",
    "verify_receipt",
]
