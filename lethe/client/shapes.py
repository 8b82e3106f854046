"""The form of each JSON answer of the service: its fields and their types.

A test compares this with the OpenAPI description that the service gives of itself. Left out are
proofs of the log, or a member's view of a masked round: what reads those checks them whole.

`str`, `int`, `num`, `bool` and `any` are JSON's types, `[X]` an array of X, `{X}` an object
with any names and X as values, `X?` null or X; other names are shapes. `X*` is a page of a list
of X.
"""

import re
from functools import cache

_CALLS = """
POST /v1/requests  Accepted
GET /v1/requests  RequestSummary*
POST /v1/requests/preview  Preview
GET /v1/requests/{request_id}  RequestView
DELETE /v1/requests/{request_id}  RequestView
POST /v1/requests/{request_id}/decision  RequestView
POST /v1/people/find  FoundPage
POST /v1/people/import  Imported
POST /v1/people/remove-held-out  HeldOutRemoved
POST /v1/cases  CaseView
POST /v1/cases/search  QueueItem*
GET /v1/cases/{ref}  CaseView
POST /v1/cases/{ref}/contact  ContactView
POST /v1/cases/{ref}/close  CaseView
POST /v1/cases/{ref}/approve  CaseView
POST /v1/cases/{ref}/refuse  CaseView
POST /v1/cases/{ref}/extend  CaseView
POST /v1/cases/{ref}/pause  CaseView
POST /v1/cases/{ref}/resume  CaseView
POST /v1/cases/{ref}/note  CaseView
POST /v1/cases/{ref}/assign  CaseView
GET /v1/releases/asked  ReleaseView*
POST /v1/releases/{release_id}/answer  ReleaseView
GET /v1/releases  ReleaseSummary*
POST /v1/releases/{release_id}/drop  ReleaseSummary
POST /v1/rounds  RoundView
GET /v1/rounds  RoundView*
GET /v1/rounds/asked  RoundNotice*
GET /v1/rounds/{round_id}  RoundView
GET /v1/rounds/{round_id}/work  {any}
PUT /v1/rounds/{round_id}/messages/{step}  {str}
POST /v1/rounds/{round_id}/abort  RoundView
POST /v1/keys  KeyView
GET /v1/keys  KeyView*
POST /v1/keys/{keyid}/confirm  KeyView
DELETE /v1/keys/{keyid}  KeyView
GET /v1/webhooks  WebhookView*
POST /v1/webhooks  WebhookMade
GET /v1/webhooks/{webhook}  WebhookView
DELETE /v1/webhooks/{webhook}  WebhookView
GET /v1/webhooks/{webhook}/deliveries  DeliveryView*
POST /v1/webhooks/{webhook}/replay  Replayed
POST /v1/webhooks/{webhook}/test  DeliveryView
POST /v1/webhooks/{webhook}/rotate  WebhookMade
POST /v1/webhooks/{webhook}/disable  WebhookView
POST /v1/webhooks/{webhook}/enable  WebhookView
GET /v1/callbacks/key  CallbackKey
GET /v1/callbacks  CallbackView*
GET /v1/callbacks/{callback}/deliveries  DeliveryView*
POST /v1/callbacks/{callback}/replay  Replayed
DELETE /v1/callbacks/{callback}  CallbackView
POST /v1/holds  HoldView
GET /v1/holds  HoldView*
POST /v1/holds/{hold}/release  HoldView
POST /v1/models  ModelView
GET /v1/models  ModelView*
GET /v1/models/{ref}  ModelView
DELETE /v1/models/{ref}  DeletionView
POST /v1/models/{ref}/mend  ModelView
GET /v1/models/{ref}/versions  VersionView*
GET /v1/models/{ref}/versions/{number}  VersionView
GET /v1/models/{ref}/manifest  ManifestView
POST /v1/models/{ref}/contributions  ContributionView
GET /v1/models/{ref}/contributions/{contribution_id}  ContributionView
POST /v1/audits  AuditView
GET /v1/audits  AuditView*
GET /v1/audits/{audit_id}  AuditView
POST /v1/audits/{audit_id}/stop  AuditView
GET /v1/log/entries  {any}
"""

_SHAPES = """
Accepted
    id: str; ref: str; state: str; due_at: str; receipt: Receipt; warnings: [str]
AttemptView
    number: int; method: str; ahead: [str]
AuditView
    id: str; model: str; method: str?; state: str; problem: str?; failure: str?;
    config: {str}; config_digest: str?; every_days: int; pairs_done: int; result: str?;
    found: str?; report_digest: str?; started_at: str?; reported_at: str?
CallbackKey
    key: str
CallbackView
    id: str; kind: str; owner: str; request: str; created_at: str; delivered_state: str?;
    ended: bool
CaseView
    ref: str; state: str; regulation: str; opened_by: str; received_at: str; due_at: str;
    days_left: int; overdue: bool; confirm_by: str?; closed_at: str?; holds: [HoldView];
    parts: [PartView]; timeline: [TimelineItem]
ContactView
    contact: str; log_index: int
ContributionView
    id: str; model: str; rows: int; state: str; failure: str?; saturated: int;
    log_index: int; warnings: [str]
DeletionView
    ref: str; log_index: int
DeliveryView
    id: str; event: str; about: str; state: str; attempts: int; created_at: str;
    next_at: str?; answer: str?; ended_at: str?
Extractor
    id: str; digest: str; parameters: {any}
FoundPage
    items: [FoundView]
FoundView
    model: str; records: [str]; held_out: [str]; erased: int; uncertified: int
HeldOutRemoved
    removed: int; log_index: int
HeldOutView
    rows: int; set: str; metric: str?; value: str?; parts: {str}?; withheld: str?
HistoryItem
    event: str; at: str; log_index: int; detail: {str}
HoldView
    id: str; of: str; target: str; reason: str; placed_by: str; placed_at: str;
    log_index: int; released_by: str?; released_at: str?; release_index: int?
Imported
    added: int
KeyView
    keyid: str; algorithm: str; public_key: str; role: str; client: str?; subject: str?;
    registered_by: str?; confirmed_by: str?; created_at: str; revoked_at: str?
ManifestView
    ref: str; family: str; classes: [str]; data: str; method: str; exponents: [int]?;
    bits: int?; penalty: num?; extractor: Extractor?; columns: int?; features: [str];
    categories: {[str]}; weighted: bool
ModelConfig
    family: str; data: str; exponents: [int]; bits: int; dimension: int; penalty: str;
    input_shape: [int]; network: Named; script: {any}
ModelView
    ref: str; state: str; failure: str?; method: str; classes: [str]; extractor: Extractor?;
    config: ModelConfig; decide: str; cooling_off: int; current_version: int?;
    created_at: str; held_out: HeldOutView?; progress: ProgressView?
Named
    id: str
PartView
    model: str; outcome: str; state: str?; assignee: str?; records: int; request: str?;
    request_ref: str?; certificate: str?; held_out_removed: int; removal_log_index: int?;
    log_index: int
Preview
    model: str; method: str; records: int; pairs: int; needed: int; warnings: [str]
ProgressView
    phase: str; done: int; total: int; unit: str
QueueItem
    ref: str; case: str?; model: str?; state: str; regulation: str; requester: str;
    assignee: str?; received_at: str; due_at: str; days_left: int; overdue: bool; held: bool
Receipt
    log_index: int; tree_size: int; leaf: str; hashes: [str]; checkpoint: str
ReleaseSummary
    id: str; request: str; model: str; records: int; block_records: int; state: str;
    asked: int; asked_at: str?; escalates_at: str
ReleaseView
    id: str; request: str; model: str; client: str; subject: str; records: [str];
    state: str; asked: int; escalates_at: str; warnings: [str]
Replayed
    waiting: int
RequestSummary
    id: str?; ref: str; state: str; model: str; method: str; regulation: str;
    received_at: str; due_at: str; overdue: bool; certificate: str?
RequestView
    id: str; ref: str; state: str; model: str; method: str; scope: Scope?; regulation: str;
    due_at: str; reason: str?; attempt: AttemptView?; progress: ProgressView?;
    history: [HistoryItem]; certificate: str?
RoundNotice
    id: str; model: str; state: str; until: str
RoundView
    id: str; model: str; state: str; reason: str?; members: int; threshold: int;
    sent: {int}; waits_for: [str]; step_until: str; requests: int; warnings: [str];
    log_index: int; created_at: str; closed_at: str?
Scope
    level: str; client: str?; records: [str]?; subject: str?
SecretView
    signature: str; public_key: str?; until: str?
TimelineItem
    at: str; model: str; event: str; log_index: int; detail: {str}
VersionCertificate
    ref: str; statement: str; result: str; log_index: int
VersionView
    number: int; head: str; statistics: str; retained_root: str; retained_count: int;
    held_out: HeldOutView?; log_index: int; created_at: str; withdrawn_at: str?;
    artifact: str; certificates: [VersionCertificate]?
WebhookMade
    id: str; url: str; events: [str]; model: str?; secrets: [SecretView]; created_by: str;
    created_at: str; disabled: str?; secret: str
WebhookView
    id: str; url: str; events: [str]; model: str?; secrets: [SecretView]; created_by: str;
    created_at: str; disabled: str?
"""


_PAGE = "items: [{}]; next: str?"


def find_call(method: str, path: str) -> str | None:
    """Return a call as the API names it, such as "GET /v1/cases/{ref}", or None.

    path: of a URL, percent-encoded; a proxy's prefix is ignored. What this returns names no
    person and no request, as the path may do.
    """
    wanted = f"{method} /v1/{path.partition('/v1/')[2]}"
    return next((call for call, form in _forms() if form.fullmatch(wanted)), None)


@cache
def calls() -> dict[str, str]:
    """Return the type of each call's answer."""
    lines = (line.split("  ") for line in _CALLS.strip().splitlines())
    return {call: kind for call, kind in lines}


@cache
def fields_of(shape: str) -> dict[str, str]:
    """Return the fields of a shape, or of a page `X*`, with their types."""
    if shape.endswith("*"):
        return _fields(_PAGE.format(shape[:-1]))
    return _fields(_texts()[shape])


@cache
def _texts() -> dict[str, str]:
    return dict(re.findall(r"^(\w+)\n((?: {4}.*\n)+)", _SHAPES, re.MULTILINE))


def _fields(text: str) -> dict[str, str]:
    pairs = (field.split(":") for field in text.split(";"))
    return {name.strip(): kind.strip() for name, kind in pairs}


@cache
def _forms() -> list[tuple[str, re.Pattern[str]]]:
    # A fixed path, such as rounds/asked, comes before one with an id in its place.
    ordered = sorted(calls(), key=lambda call: call.count("{"))
    return [(call, re.compile(re.sub(r"\{\w+\}", "[^/]+", call))) for call in ordered]
