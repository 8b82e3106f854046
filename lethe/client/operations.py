"""Every call of the service, defined once for both clients.

An operation is a conversation or a paginated list. `Client` and `AsyncClient` offer all of them
under the same names; they differ in how they run a conversation.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import update_wrapper
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

from lethe.client import calls
from lethe.client.answers import (
    Document,
    Preview,
    Receipt,
    RequestStatus,
    RequestSummary,
    parse_preview,
    parse_receipt,
    parse_status,
    parse_summary,
)
from lethe.client.calls import Call
from lethe.client.core import Conversation, Core, Pause
from lethe.client.entries import EntryFilter, EntryReading, LogEntries
from lethe.client.errors import ProblemError, UnreachableError, WaitTimeoutError
from lethe.client.receipts import verify_receipt
from lethe.identity import Identity
from lethe.log.log_keys import LogKeys
from lethe.log.note import NoteVerifier
from lethe.signing.keys import PrivateKey, PublicKey, public_pem

FIRST_POLL_S, LONGEST_POLL_S = 0.05, 2.0  # an erasure takes about 0.3 s when idle
POLL_GROWTH = 1.2  # so the end is noticed within a fifth of the elapsed time

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A paginated list: the call for its first page, and the parser of an item."""

    first: Call
    parse: Callable[[Document], T]


class Operations(Core):
    """The calls. Each may raise the errors that `Client` documents."""

    def submit_erasure(
        self,
        model: str,
        *,
        records: Sequence[str] | None = None,
        client: str | None = None,
        subject: str | None = None,
        method: str | None = None,
        regulation: str = "gdpr",
        idempotency_key: str | None = None,
        callback: str | None = None,
    ) -> Conversation[Receipt]:
        """Request the erasure of exactly one of records, a client or a subject.

        Once this returns the request is durable. To be able to retry after a crash of the
        caller without submitting twice, choose the idempotency_key and store it.

        callback: an https:// address of yours that is notified when the request's state
        changes; verify its notices with `lethe.client.verify_callback`.

        Raises:
            ScopeError: Not exactly one of the three is given.
            ReceiptError: The receipt does not prove that `log` holds the request.
        """
        scope = calls.scope_of(records, client, subject)
        call = calls.submit(model, scope, method, regulation, idempotency_key, callback)
        receipt = parse_receipt((yield from self.exchange(call)))
        if self._log is not None:
            verify_receipt(receipt, self._log)
        return receipt

    def preview_erasure(
        self,
        model: str,
        *,
        records: Sequence[str] | None = None,
        client: str | None = None,
        subject: str | None = None,
        method: str | None = None,
    ) -> Conversation[Preview]:
        """Return what `submit_erasure` would do now; nothing is stored.

        Raises:
            ScopeError: Not exactly one of the three is given.
            ProblemError: The service would refuse the request.
        """
        scope = calls.scope_of(records, client, subject)
        return parse_preview((yield from self.exchange(calls.preview(model, scope, method))))

    def status(self, request_id: str) -> Conversation[RequestStatus]:
        """Return a request's state, deadline and history."""
        return parse_status((yield from self.exchange(calls.request(request_id))))

    def wait(
        self,
        request_id: str,
        timeout: float | None = None,
        on_change: Callable[[RequestStatus], object] | None = None,
        on_answer: Callable[[RequestStatus], object] | None = None,
    ) -> Conversation[RequestStatus]:
        """Return once the request is certified, refused, withdrawn or failed.

        on_change is called with the first state seen and with each new one, on_answer with
        every answer: its progress may be new even if its state is not. timeout is in seconds;
        None waits for ever, as the legal deadline of a month may require. If the service
        restarts meanwhile, waiting continues.

        Raises:
            WaitTimeoutError: The time-out passed, and the service answers. The request
                continues.
            UnreachableError: The time-out passed, and the service does not answer.
            ProblemError: The service refused; there may be no such request.
        """
        start, state, pause = self._monotonic(), None, FIRST_POLL_S
        while True:
            gone: ProblemError | UnreachableError | None = None
            try:
                status = yield from self.status(request_id)
            except UnreachableError as error:
                gone = error
            except ProblemError as error:
                if error.status < 500:
                    raise
                gone = error
            else:
                if status.state != state:
                    state, pause = status.state, FIRST_POLL_S
                    if on_change is not None:
                        on_change(status)
                if on_answer is not None:
                    on_answer(status)
                if status.final:
                    return status
            if timeout is not None:
                left = start + timeout - self._monotonic()
                if left <= 0:
                    raise gone or WaitTimeoutError(
                        f"after {timeout:g} s the request is still {state}; the service "
                        "continues to work on it"
                    )
                pause = min(pause, left)
            yield Pause(pause)
            pause = min(pause * POLL_GROWTH, LONGEST_POLL_S)

    def withdraw(self, request_id: str) -> Conversation[RequestStatus]:
        """Withdraw a request that no worker has started.

        It needs the key that signed it, or the operator's token that submitted it for a person.
        """
        return parse_status((yield from self.exchange(calls.withdraw(request_id))))

    def certificate(self, request_id: str) -> Conversation[bytes]:
        """Return the certificate, a Sigstore bundle, unverified."""
        return self.content(calls.request(request_id, "/certificate", calls.BUNDLE))

    def evidence(self, request_id: str) -> Conversation[bytes]:
        """Return the evidence whose digest the certificate names."""
        return self.content(calls.request(request_id, "/evidence", most=calls.FILE))

    def contribute(
        self, model: str, npz: bytes, *, add_back: bool = False
    ) -> Conversation[Document]:
        """Add rows to a model: an .npz with features, labels, clients and records.

        Erased records are accepted only with add_back, which is part of the signed request.
        """
        return self.document(calls.contribute(model, npz, add_back))

    def register_key(
        self,
        key: PublicKey | PrivateKey,
        role: str = "requester",
        *,
        keyid: str | None = None,
        client: str | None = None,
        subject: str | None = None,
    ) -> Conversation[str]:
        """Register the public half of a key and return its keyid (default: fingerprint).

        client or subject restricts what the key may erase.
        """
        chosen, call = calls.register_key(key, role, keyid, client, subject)
        yield from self.document(call)
        return chosen

    def revoke_key(self, keyid: str) -> Conversation[None]:
        """Revoke a key. Its earlier signatures stay valid."""
        yield from self.exchange(calls.revoke_key(keyid))

    def confirm_key(self, keyid: str, key: PublicKey | PrivateKey) -> Conversation[Document]:
        """Confirm, as a second person, the holder of a bound key; returns the key's record."""
        wanted = {"public_key": public_pem(key)}
        return self.document(calls.post_as_operator(wanted, "keys", keyid, "confirm"))

    def keys(self) -> Listing[Document]:
        """Iterate over all registered keys, by keyid, including revoked ones."""
        return Listing(calls.operator_get("keys"), as_it_is)

    def register_model(
        self, manifest: Mapping[str, Any], npz: bytes | Path | None = None
    ) -> Conversation[Document]:
        """Register a model: its manifest and, unless the clients keep the rows, its rows.

        A file of rows is streamed, so its size does not matter for memory. Raises
        ChangedFileError if it changes meanwhile.
        """
        return self.document(calls.register_model(manifest, npz))

    def manifest(self, model: str) -> Conversation[Document]:
        """Return the parameters of a client's statistics; signed with the client's key."""
        return self.document(calls.signed_get("models", model, "manifest"))

    def asked(self) -> Conversation[list[Document]]:
        """Return the open releases of the signing client: records, by model."""
        page, _ = yield from self.page(calls.signed_get("releases", "asked"))
        return list(page.items)

    def answer_release(self, release: str, npz: bytes) -> Conversation[Document]:
        """Send the statistics of exactly the records of a release."""
        return self.document(calls.answer_release(release, npz))

    def drop_release(self, release: str) -> Conversation[Document]:
        """Remove all contributions of an unresponsive client for the subject; needs a token."""
        return self.document(calls.act("POST", "releases", release, "drop"))

    def decide(self, request_id: str, decision: str, why: str) -> Conversation[Document]:
        """Decide on a request in state needs-decision: retry or abandon; needs a token."""
        wanted = {"decision": decision, "why": why}
        return self.document(calls.post_as_operator(wanted, "requests", request_id, "decision"))

    def start_audit(self, wanted: Mapping[str, Any]) -> Conversation[Document]:
        """Start an audit of a network's method: the fields of NewAudit; needs a token."""
        return self.document(calls.post_as_operator(wanted, "audits"))

    def stop_audit(self, audit_id: str) -> Conversation[Document]:
        """End an audit and its schedule; needs an operator's token."""
        return self.document(calls.act("POST", "audits", audit_id, "stop"))

    def audits(self) -> Listing[Document]:
        """Iterate over all audits."""
        return Listing(calls.operator_get("audits"), as_it_is)

    def audit(self, audit_id: str) -> Conversation[Document]:
        """Return one audit."""
        return self.document(calls.operator_get("audits", audit_id))

    def audit_file(self, audit_id: str, part: str) -> Conversation[bytes]:
        """Return an audit's "report" or its "statistics"."""
        call = calls.operator_get("audits", audit_id, part, accept="*/*", most=calls.FILE)
        return self.content(call)

    def period_report(
        self, first: str, last: str, form: str = "json", language: str = "en"
    ) -> Conversation[bytes]:
        """Return the report of a period (dates as YYYY-MM-DD) as json, csv, html or pdf."""
        query = {"from": first, "to": last, "format": form, "language": language}
        call = calls.operator_get("reports", "period", query=query, accept="*/*")
        return self.content(call)

    def find_person(
        self, person: Identity, models: Sequence[str] | None = None
    ) -> Conversation[list[Document]]:
        """Return each model's records of a person; only digests are sent, only in the body."""
        wanted = calls.of_person(person, models)
        found = yield from self.document(calls.post_as_operator(wanted, "people", "find"))
        return list(found["items"])

    def import_people(
        self, model: str, identities: Sequence[tuple[str, Identity]]
    ) -> Conversation[int]:
        """Import identities of records, as (record, identity); return how many were new.

        Raises ProblemError, with the `places` in the list, if the model lacks a record.
        """
        listed = [
            {"record": record, "person": calls.digests_of(person)}
            for record, person in identities
        ]
        wanted = {"model": model, "identities": listed}
        added = yield from self.document(calls.post_as_operator(wanted, "people", "import"))
        return int(added["added"])

    def remove_held_out(self, model: str, records: Sequence[str]) -> Conversation[Document]:
        """Remove a model's stored held-out rows by their ids, all of them or none."""
        wanted = {"model": model, "records": list(records)}
        return self.document(calls.post_as_operator(wanted, "people", "remove-held-out"))

    def open_case(
        self,
        person: Identity,
        ticket: str,
        *,
        models: Sequence[str] | None = None,
        regulation: str = "gdpr",
        checked: str | None = None,
        contact: str | None = None,
    ) -> Conversation[Document]:
        """Open a case for a person's erasure on their behalf, in some models or all of them.

        ticket: where the person's letter is filed. checked: how the identity was checked.
        contact: the address for the answer; it is destroyed when the case is closed.
        """
        wanted = {
            **calls.of_person(person, models),
            "ticket": ticket,
            "regulation": regulation,
            **({} if checked is None else {"checked": checked}),
            **({} if contact is None else {"contact": contact}),
        }
        return self.document(calls.post_as_operator(wanted, "cases", once=True))

    def case(self, ref: str) -> Conversation[Document]:
        """Return a case: parts, deadline and timeline."""
        return self.document(calls.operator_get("cases", ref))

    def case_summary(self, ref: str) -> Conversation[bytes]:
        """Return the signed answer to a case, unverified."""
        return self.content(calls.operator_get("cases", ref, "summary", accept="*/*"))

    def open_contact(self, ref: str) -> Conversation[Document]:
        """Return a case's contact address; the log records who opened it."""
        return self.document(calls.act("POST", "cases", ref, "contact"))

    def close_case(self, ref: str) -> Conversation[Document]:
        """Close an answered case; its contact address is destroyed."""
        return self.document(calls.act("POST", "cases", ref, "close"))

    def search_cases(
        self, filters: Mapping[str, Any], person: Identity | None = None
    ) -> Conversation[Document]:
        """Return a page of the queue, `items` and `next`, by deadline.

        filters: state, model, requester, overdue, due_within, after and limit, as in POST
        /v1/cases/search. person: only digests are sent, and only in the body.
        """
        wanted = dict(filters)
        if person is not None:
            wanted["person"] = calls.of_person(person, None)["person"]
        return self.document(calls.post_as_operator(wanted, "cases", "search"))

    def decide_case(
        self, ref: str, decision: str, value: str | None = None
    ) -> Conversation[Document]:
        """Decide on a case or request: approve, refuse, extend, pause, resume, note or assign.

        value: the code of a reason to refuse, extend and pause; the text of a note; the name of
        the operator's token to assign it to.
        """
        if value is None:
            return self.document(calls.act("POST", "cases", ref, decision))
        field = {"note": "text", "assign": "to"}.get(decision, "reason")
        return self.document(calls.post_as_operator({field: value}, "cases", ref, decision))

    def models(self) -> Listing[Document]:
        """Iterate over all models."""
        return Listing(calls.operator_get("models"), as_it_is)

    def model(self, ref: str) -> Conversation[Document]:
        """Return one model."""
        return self.document(calls.operator_get("models", ref))

    def delete_model(self, ref: str) -> Conversation[Document]:
        """Delete a model with its rows, keys and files; its log and certificates remain."""
        return self.document(calls.act("DELETE", "models", ref))

    def mend_model(self, ref: str) -> Conversation[Document]:
        """Retrain a quarantined model from its rows; follow the progress with `model`."""
        return self.document(calls.act("POST", "models", ref, "mend"))

    def add_webhook(self, wanted: Mapping[str, Any]) -> Conversation[Document]:
        """Add a webhook endpoint, the fields of NewWebhook; its secret is shown once."""
        return self.document(calls.post_as_operator(wanted, "webhooks", once=True))

    def webhooks(self) -> Listing[Document]:
        """Iterate over the webhook endpoints; needs an operator's token."""
        return Listing(calls.operator_get("webhooks"), as_it_is)

    def webhook(self, webhook: str) -> Conversation[Document]:
        """Return one endpoint."""
        return self.document(calls.operator_get("webhooks", webhook))

    def deliveries(self, webhook: str) -> Listing[Document]:
        """Iterate over an endpoint's past and pending deliveries, newest first."""
        return Listing(calls.operator_get("webhooks", webhook, "deliveries"), as_it_is)

    def act_on_webhook(
        self, webhook: str, act: Literal["rotate", "disable", "enable", "test"]
    ) -> Conversation[Document]:
        """Rotate an endpoint's secret, disable or enable it, or send a test notice."""
        # A second rotation would end the secret that receivers have.
        once = act == "rotate"
        return self.document(calls.act("POST", "webhooks", webhook, act, once=once))

    def replay_webhook(
        self, webhook: str, delivery: str | None = None
    ) -> Conversation[Document]:
        """Resend one delivery, or all that failed."""
        wanted = {"delivery": delivery}
        return self.document(calls.post_as_operator(wanted, "webhooks", webhook, "replay"))

    def remove_webhook(self, webhook: str) -> Conversation[Document]:
        """Remove an endpoint."""
        return self.document(calls.act("DELETE", "webhooks", webhook))

    def place_hold(self, ref: str, reason: str) -> Conversation[Document]:
        """Exempt a case, request or model from the end of its retention; returns the hold."""
        wanted = {"ref": ref, "reason": reason}
        return self.document(calls.post_as_operator(wanted, "holds", once=True))

    def holds(self, *, released: bool = False) -> Listing[Document]:
        """Iterate over the active legal holds; released: include the released ones."""
        query = {"released": True if released else None}
        return Listing(calls.operator_get("holds", query=query), as_it_is)

    def release_hold(self, hold: str) -> Conversation[Document]:
        """Release a legal hold that another operator placed."""
        return self.document(calls.act("POST", "holds", hold, "release"))

    def callback_key(self) -> Conversation[str]:
        """Return the public key with which callbacks are verified, `whpk_…`."""
        found = yield from self.document(Call("GET", "/v1/callbacks/key"))
        return str(found["key"])

    def callbacks(self, ref: str | None = None) -> Listing[Document]:
        """Iterate over callbacks of open requests; needs an operator's token.

        ref: only of this request, by its reference or the id that an agent gave it.
        """
        return Listing(calls.operator_get("callbacks", query={"ref": ref}), as_it_is)

    def callback_deliveries(self, callback: str) -> Listing[Document]:
        """Iterate over a callback's past and pending deliveries, newest first."""
        return Listing(calls.operator_get("callbacks", callback, "deliveries"), as_it_is)

    def replay_callback(
        self, callback: str, delivery: str | None = None
    ) -> Conversation[Document]:
        """Resend one delivery of a callback, or all that failed."""
        wanted = {"delivery": delivery}
        return self.document(calls.post_as_operator(wanted, "callbacks", callback, "replay"))

    def remove_callback(self, callback: str) -> Conversation[Document]:
        """Destroy the address of a callback: nothing more is sent to it."""
        return self.document(calls.act("DELETE", "callbacks", callback))

    def releases(self) -> Listing[Document]:
        """Iterate over releases that clients have not answered; needs an operator's token."""
        return Listing(calls.operator_get("releases"), as_it_is)

    def versions(self, ref: str) -> Listing[Document]:
        """Iterate over a model's versions, oldest first."""
        return Listing(calls.operator_get("models", ref, "versions"), as_it_is)

    def version(self, ref: str, number: int | Literal["current"]) -> Conversation[Document]:
        """Return one version of a model, by its number or the current one."""
        return self.document(calls.operator_get("models", ref, "versions", str(number)))

    def artifact(self, ref: str, number: int | Literal["current"]) -> Conversation[bytes]:
        """Return a version's file as it was certified. If it was withdrawn: problem 410."""
        path = ("models", ref, "versions", str(number), "artifact")
        return self.content(calls.operator_get(*path, accept="*/*", most=calls.FILE))

    def model_signature(
        self, ref: str, number: int | Literal["current"]
    ) -> Conversation[bytes]:
        """Return the issuer's signature of a version's file, for OpenSSF Model Signing."""
        path = ("models", ref, "versions", str(number), "signature")
        return self.content(calls.operator_get(*path, accept="*/*"))

    def requests(
        self,
        *,
        state: str | None = None,
        model: str | None = None,
        method: str | None = None,
        overdue: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 100,
    ) -> Listing[RequestSummary]:
        """Iterate over requests, oldest first; since and until limit the time of receipt."""
        query: calls.Query = {
            "state": state,
            "model": model,
            "method": method,
            "overdue": overdue,
            "since": since.isoformat() if since else None,
            "until": until.isoformat() if until else None,
            "limit": page_size,
        }
        return Listing(calls.operator_get("requests", query=query), parse_summary)

    def log_entries(
        self,
        keys: NoteVerifier | LogKeys,
        first: int = 0,
        last: int | None = None,
        *,
        wanted: EntryFilter = EntryFilter(),  # noqa: B008, frozen
        prove: bool = False,
    ) -> Conversation[LogEntries]:
        """Return entries `first` to `last` of the log, all in memory, proven against `keys`.

        Without a filter it is proven that no entry is left out. For a filter on the service
        that cannot be proven; with `prove` the whole range is read, proven and filtered here.

        Raises:
            NoteError, CheckpointError: The log's key did not sign the checkpoint.
            ProofError: An entry is not proven, or one is left out.
        """
        reading = EntryReading(keys, first, last, wanted, prove)
        while (call := reading.call()) is not None:
            reading.take((yield from self.document(call)))
        return reading.found()


def as_it_is(document: Document) -> Document:
    """Return a list's item unchanged."""
    return document


def named_after(method: F, operation: Callable[..., Any], made: Any = None) -> F:
    """Give a client's method the name, documentation and signature of its operation.

    The return type becomes the operation's result instead of its conversation; for lists,
    `made` is the container, such as `Iterator`.
    """
    update_wrapper(method, operation)
    shown = inspect.signature(operation)
    *_, result = get_args(shown.return_annotation)  # of a conversation or a listing
    returns = result if made is None else made[result]
    vars(method)["__signature__"] = shown.replace(return_annotation=returns)
    return method
