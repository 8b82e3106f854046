"""The typed SDK: `Client` and `AsyncClient` for a Lethe service."""

from lethe.client.answers import (
    HistoryEvent,
    LogReceipt,
    Preview,
    Receipt,
    RequestStatus,
    RequestSummary,
)
from lethe.client.asynchronous import AsyncClient
from lethe.client.entries import EntryFilter, LogEntries, LoggedEntry
from lethe.client.errors import (
    AnswerError,
    ChangedFileError,
    ClientError,
    CredentialsError,
    NoticeError,
    ProblemError,
    ReceiptError,
    ScopeError,
    UnreachableError,
    WaitTimeoutError,
)
from lethe.client.notices import verify_callback
from lethe.client.receipts import verify_receipt
from lethe.client.retry import RetryPolicy
from lethe.client.sync import Client

__all__ = [
    "AnswerError",
    "AsyncClient",
    "ChangedFileError",
    "Client",
    "ClientError",
    "CredentialsError",
    "EntryFilter",
    "HistoryEvent",
    "LogEntries",
    "LogReceipt",
    "LoggedEntry",
    "NoticeError",
    "Preview",
    "ProblemError",
    "Receipt",
    "ReceiptError",
    "RequestStatus",
    "RequestSummary",
    "RetryPolicy",
    "ScopeError",
    "UnreachableError",
    "WaitTimeoutError",
    "verify_callback",
    "verify_receipt",
]
