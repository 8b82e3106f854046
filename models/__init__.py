"""SQLModel tables: rows and constraints, no behaviour and no validation.

`table=True` skips pydantic's validation, so external input is validated in `app.schemas` before
it becomes a row. Importing this package registers every table.
"""

from models.audit import Audit, AuditPair
from models.credentials import BearerToken, KeyEvent, RequesterKey, UsedNonce
from models.erasure_request import (
    Certificate,
    ErasureRequest,
    Release,
    RequestEvent,
    Verification,
)
from models.job import Job, ScheduleLease, SiloTask
from models.log import LogCheckpoint, LogEntry, LogNode, WitnessedCheckpoint, WitnessStanding
from models.model import Artifact, Contribution, Model, ModelVersion
from models.notice import Callback, Delivery, NoticeCursor, Webhook
from models.person import Case, IntakeChallenge, IntakeCode, IntakeProof, PeopleSums, Person
from models.record import FeatureBlock, Record, RetainedPage, Subject, Tombstone
from models.retention import LegalHold, RetentionRemoval
from models.round import Round, RoundMember
