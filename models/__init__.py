"""SQLModel tables, one file each: rows and constraints, no behaviour and no validation.

`table=True` skips pydantic's validation, so whatever comes from outside is validated in
`app.schemas` before it becomes a row here. Importing this package registers every table.
"""

from models.artifact import Artifact
from models.audit import Audit, AuditPair
from models.bearer_token import BearerToken
from models.certificate import Certificate
from models.contribution import Contribution
from models.erasure_request import ErasureRequest
from models.feature_block import FeatureBlock
from models.job import Job
from models.log_checkpoint import LogCheckpoint
from models.log_entry import LogEntry
from models.log_node import LogNode
from models.model import Model
from models.model_version import ModelVersion
from models.nonce import UsedNonce
from models.person import Case, Person
from models.record import Record
from models.release import Release
from models.request_event import RequestEvent
from models.requester_key import RequesterKey
from models.retained_page import RetainedPage
from models.round import Round
from models.round_member import RoundMember
from models.silo_task import SiloTask
from models.subject import Subject
from models.tombstone import Tombstone
from models.verification import Verification

__all__ = [
    "Artifact",
    "Audit",
    "AuditPair",
    "BearerToken",
    "Case",
    "Certificate",
    "Contribution",
    "ErasureRequest",
    "FeatureBlock",
    "Job",
    "LogCheckpoint",
    "LogEntry",
    "LogNode",
    "Model",
    "ModelVersion",
    "Person",
    "Record",
    "Release",
    "RequestEvent",
    "RequesterKey",
    "RetainedPage",
    "Round",
    "RoundMember",
    "SiloTask",
    "Subject",
    "Tombstone",
    "UsedNonce",
    "Verification",
]
