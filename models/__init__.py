"""SQLModel tables: rows and constraints, no behaviour and no validation.

`table=True` skips pydantic's validation, so external input is validated in `app.schemas` before
it becomes a row. Importing this package registers every table.
"""

from models.artifact import Artifact
from models.audit import Audit, AuditPair
from models.certificate import Certificate
from models.contribution import Contribution
from models.credentials import BearerToken, KeyEvent, RequesterKey, UsedNonce
from models.erasure_request import ErasureRequest, RequestEvent
from models.intake import IntakeChallenge, IntakeCode, IntakeProof
from models.job import Job, ScheduleLease
from models.log import LogCheckpoint, LogEntry, LogNode
from models.model import Model, ModelVersion
from models.notice import Callback, Delivery, NoticeCursor, Webhook
from models.person import Case, PeopleSums, Person
from models.record import FeatureBlock, Record, RetainedPage
from models.release import Release
from models.retention import LegalHold, RetentionRemoval
from models.round import Round, RoundMember
from models.silo_task import SiloTask
from models.subject import Subject, Tombstone
from models.verification import Verification
from models.witness import WitnessedCheckpoint, WitnessStanding

__all__ = [
    "Artifact",
    "Audit",
    "AuditPair",
    "BearerToken",
    "Callback",
    "Case",
    "Certificate",
    "Contribution",
    "Delivery",
    "ErasureRequest",
    "FeatureBlock",
    "IntakeChallenge",
    "IntakeCode",
    "IntakeProof",
    "Job",
    "KeyEvent",
    "LegalHold",
    "LogCheckpoint",
    "LogEntry",
    "LogNode",
    "Model",
    "ModelVersion",
    "NoticeCursor",
    "PeopleSums",
    "Person",
    "Record",
    "Release",
    "RequestEvent",
    "RequesterKey",
    "RetainedPage",
    "RetentionRemoval",
    "Round",
    "RoundMember",
    "ScheduleLease",
    "SiloTask",
    "Subject",
    "Tombstone",
    "UsedNonce",
    "Verification",
    "Webhook",
    "WitnessStanding",
    "WitnessedCheckpoint",
]
