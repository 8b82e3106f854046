"""One frozen settings object, read from the environment (`LETHE_*`) at start-up."""

import base64
import binascii
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from lethe.errors import LetheError

PLACEHOLDERS = ("changeme", "change-me", "secret", "password", "example", "lethe")


MASTER_KEY_BYTES = 32
MOST_SILOS = 1000  # each is a queue
SMTP_SCHEMES = ("smtp", "smtps", "smtp+plain")
ENCODED = "write / # ? @ of the password as %2F %23 %3F %40"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
MOST_COALESCED = 256  # requests in one update; each adds a sealed draft to its transaction
# Beyond these a date has no year left, and the first task that computes one would fail, such as
# each retention run. PostgreSQL takes a time-out of 24 days at most.
MOST_DAYS, MOST_SECONDS, DAY_S = 36_500, 31_536_000, 86_400
SIMILAR = 0.8  # of difflib: one letter in five differs
MOST_BYTES = 1 << 60  # the system's limits have 63 bits
DRIVERS = ("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg")
BROKERS = ("redis", "rediss", "redis+socket")  # those whose messages `app.broker` checks
# Signatures cover it, so it has the one spelling that clients send.
PUBLIC_URL = re.compile(
    r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(/[^\s?#]*)?", re.ASCII
)
HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f.]*:[0-9a-f:.]*:[0-9a-f:.]*")  # or an IPv6 address
# Variables that are no settings: of the command line, and keys that key files may name.
OTHERS = re.compile(r"URL|TOKEN|CONFIG|SQL|VECTORS|TEST_.*|.*_KEY(_[0-9]+)?")


class SettingsError(LetheError):
    """The environment describes no installation that may run."""

    slug, title = "settings", "The configuration is refused"


class Settings(BaseSettings):
    """Everything an installation can choose. Each field names its unit and its default.

    Raises SettingsError if a variable is refused; the message names it and never its value.
    """

    model_config = SettingsConfigDict(
        env_prefix="LETHE_", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    def __init__(self, **values: Any) -> None:
        if misspelt := _misspelt(os.environ):  # first: a default would be refused in its place
            raise SettingsError(misspelt)
        try:
            super().__init__(**values)
        except ValidationError as error:
            found = error.errors(include_input=False, include_url=False, include_context=False)
            raise SettingsError("; ".join(_complaint(dict(item)) for item in found)) from None

    environment: Literal["development", "production"] = Field(
        default="development",
        description="In production placeholder secrets and planted faults are refused.",
    )
    data_dir: Path = Field(
        default=Path("lethe-data"),
        description="Directory of keys, sealed artifacts, SQLite file and file broker.",
    )
    database_url: str = Field(
        default="", description="SQLAlchemy URL; empty means SQLite in the data directory."
    )
    broker_url: str = Field(
        default="filesystem://",
        description="Celery broker; filesystem:// needs no server, redis://… needs one.",
    )
    origin: str = Field(
        default="localhost/lethe",
        pattern=r"^[^\s+\x00-\x20]+$",
        max_length=200,
        description="The log's name: first line of each checkpoint. Never change it.",
    )
    public_url: str = Field(
        default="",
        description="The URL clients see; signatures cover it. Required in production.",
    )
    issuer_keyid: str = Field(
        default="issuer-1",
        pattern=r"^[A-Za-z0-9._-]{1,80}$",
        description="Name of the issuer's first key; later ones are named by the log.",
    )
    master_key: SecretStr = Field(
        default=SecretStr(""),
        description="Base64 of 32 bytes; opens the root secret. Empty: keys/master.key.",
    )
    master_key_next: SecretStr = Field(
        default=SecretStr(""),
        description="The next master key; only `lethe service-key rotate master` reads it.",
    )
    pkcs11_module: str = Field(
        default="",
        pattern=r"^(/.+)?$",
        description="Path of the PKCS#11 library, if key files name keys in an HSM.",
    )
    pkcs11_pin: SecretStr = Field(
        default=SecretStr(""),
        description="PIN of the HSM's token; empty: the file that a key's pin-source names.",
    )
    database_password: SecretStr = Field(
        default=SecretStr(""),
        description="Replaces the password of database_url, so that the URL can be public.",
    )
    device: Literal["auto", "cpu", "cuda", "torch-cpu"] = Field(
        default="auto",
        description="Sums rows and trains networks; auto: a GPU that passes its self-test.",
    )
    gpu_queue: bool = Field(
        default=False,
        description="Send jobs that train networks only to workers of the queue gpu.",
    )
    decide: Literal["review", "at-once"] = Field(
        default="review",
        description="Whether officers approve requests of models registered without --decide.",
    )
    intake: bool = Field(
        default=False,
        description="Serve /intake, the form for people. It mails addresses that they enter.",
    )
    intake_kinds: str = Field(
        default="",
        pattern=r"^([a-z][a-z0-9_-]{0,31}(,[a-z][a-z0-9_-]{0,31}){0,6})?$",
        description="Identities besides email in /intake, comma-separated: customer,phone.",
    )
    intake_hourly: int = Field(
        default=200,
        gt=0,
        description="Most codes that each API process sends from /intake in an hour, in total.",
    )
    time_zone: str = Field(
        default="UTC",
        description="IANA name of the time zone whose calendar deadlines are counted in.",
    )
    calls_per_minute: int = Field(
        default=6000,
        ge=0,
        description="Calls a minute of one key or token to one API process; 0: no limit.",
    )
    open_requests_per_key: int = Field(
        default=10_000,
        ge=0,
        description="Erasure requests that one key may have open at a time; 0: no limit.",
    )
    waiting_contributions_per_key: int = Field(
        default=100,
        ge=0,
        description="Contributions of one key that may wait in a model's queue; 0: no limit.",
    )
    max_body_bytes: int = Field(
        default=1_048_576, gt=0, description="Largest JSON request body, in bytes."
    )
    max_upload_bytes: int = Field(
        default=1_073_741_824,
        gt=0,
        description="Largest registration or contribution, in bytes, also once unpacked.",
    )
    max_contribution_rows: int = Field(
        default=200_000,
        gt=0,
        description="Largest contribution, in rows, held-out ones too: others cannot write "
        "while it is stored.",
    )
    max_contribution_owners: int = Field(
        default=5_000,
        gt=0,
        description="Most clients and subjects that one contribution may name.",
    )
    max_verify_bytes: int = Field(
        default=67_108_864,
        gt=0,
        description="Largest upload to POST /v1/certificates/verify, which anybody may call.",
    )
    max_anonymous_bytes: int = Field(
        default=134_217_728,
        gt=0,
        description="Maximum bytes of bodies held for unauthenticated senders.",
    )
    max_held_bytes: int = Field(
        default=2_147_483_648,
        gt=0,
        description="Maximum bytes of bodies held for known senders, uploads sealed on disk.",
    )
    max_parsed_at_once: int = Field(
        default=2,
        gt=0,
        description="Bodies of known senders that one API process parses at once; separately, "
        "documents that it renders at once for holders of a request, and certificates that it "
        "verifies at once for anybody.",
    )
    body_timeout_seconds: int = Field(
        default=20,
        gt=0,
        le=DAY_S,
        description="Longest wait for a body, in seconds; each 16 KiB that arrive add one.",
    )
    max_scope_records: int = Field(
        default=10_000,
        gt=0,
        description="Most records that the body of an erasure request may name.",
    )
    request_retention_days: int = Field(
        default=1095,
        ge=0,
        le=MOST_DAYS,
        description="Days that scope and openings of an ended request or case are kept.",
    )
    evidence_retention_days: int = Field(
        default=1095,
        ge=0,
        le=MOST_DAYS,
        description="Days that evidence and scores are kept; never longer than the request's.",
    )
    contact_retention_days: int = Field(
        default=90,
        ge=0,
        le=MOST_DAYS,
        description="Days after its deadline that the contact address of a case is kept.",
    )
    key_retention_days: int = Field(
        default=0,
        ge=0,
        le=MOST_DAYS,
        description="Days that the client or subject of a revoked requester key is kept.",
    )
    undecided_retention_days: int = Field(
        default=90,
        ge=0,
        le=MOST_DAYS,
        description="Days after its deadline until an undecided request is refused.",
    )
    lease_seconds: int = Field(
        default=120,
        gt=0,
        le=DAY_S,
        description="Duration of a worker's lease on a job until it is renewed, in seconds.",
    )
    stall_seconds: int = Field(
        default=60,
        ge=2,
        le=DAY_S,
        description="PostgreSQL ends a write transaction idle for this long, in seconds.",
    )
    start_seconds: int = Field(
        default=60,
        ge=0,
        le=DAY_S,
        description="How long a starting process waits for PostgreSQL, in seconds.",
    )
    min_free_bytes: int = Field(
        default=268_435_456,
        ge=0,
        description="/readyz fails if the data directory's disk has less free, in bytes.",
    )
    sweep_seconds: int = Field(
        default=5,
        gt=0,
        le=DAY_S,
        description="How often stuck jobs are looked for, in seconds.",
    )
    max_tries: int = Field(
        default=5, gt=0, description="Tries before a computation error fails a job."
    )
    fit_seconds: int = Field(
        default=3600,
        gt=0,
        le=MOST_SECONDS,
        description="Longest fit of a recipe or run of a script, in seconds.",
    )
    fit_memory_bytes: int = Field(
        default=8 << 30,
        ge=1 << 30,
        le=MOST_BYTES,
        description="Largest address space of a fit of a recipe or run of a script, in bytes.",
    )
    fit_output_bytes: int = Field(
        default=1 << 30,
        ge=1 << 20,
        le=MOST_BYTES,
        description="Largest file that a script writes, in bytes.",
    )
    coalesce: bool = Field(
        default=True,
        description="Execute requests that wait for one model together; false: one at a time.",
    )
    batch_min_requests: int = Field(
        default=1,
        ge=1,
        le=MOST_COALESCED,
        description="Erasure requests collected before a model is updated.",
    )
    batch_max_wait_seconds: int = Field(
        default=0,
        ge=0,
        le=MOST_SECONDS,
        description="Longest such wait, in seconds; it ends 7 days before a request is due.",
    )
    silos: int = Field(
        default=0,
        ge=0,
        le=MOST_SILOS,
        description="Silos that federated rounds are sent to; 0: the worker trains by itself.",
    )
    round_timeout_seconds: int = Field(
        default=600,
        gt=0,
        le=43_200,
        description="Longest wait for silos in a round of a training without its own time-out.",
    )
    silo_key_dir: str = Field(
        default="",
        description="Directory of silos' private keys, for their workers; empty: keys/.",
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Log lines on standard error: text or one JSON object each."
    )
    log_level: Literal["warning", "info"] = Field(
        default="warning",
        description="info adds a line for each call and for each stage of a job.",
    )
    otel_endpoint: str = Field(
        default="",
        pattern=r"^(https?://[^\s?#]+)?$",
        description="URL of the collector for traces, OTLP over HTTP; empty: none.",
    )
    metrics_access: Literal["token", "open"] = Field(
        default="token",
        description="Who may read /metrics: holders of a bearer token, or everybody.",
    )
    worker_metrics: str = Field(
        default="",
        pattern=r"^(\S+:[0-9]{1,5})?$",
        description="HOST:PORT where a worker serves /metrics to everybody; empty: nowhere.",
    )
    smtp_url: SecretStr = Field(
        default=SecretStr(""),
        description="smtp:// (STARTTLS) or smtps://USER:PASSWORD@HOST:PORT; empty: no mail.",
    )
    mail_from: str = Field(
        default="",
        pattern=r"^([^\s@<>,]+@[^\s@<>,]+)?$",
        max_length=254,
        description="Address that mail is sent from; required with LETHE_SMTP_URL.",
    )
    drp_business_id: str = Field(
        default="",
        max_length=128,
        pattern=r"^[A-Za-z0-9._:-]*$",
        description="business-id in the Data Rights Protocol's directory; empty: /drp is off.",
    )
    opendsr_domain: str = Field(
        default="",
        pattern=r"^([a-z0-9-]+(\.[a-z0-9-]+)*)?$",
        description="Domain of OpenDSR's certificate, keys/opendsr.pem; empty: /dsr is off.",
    )
    opendsr_identities: str = Field(
        default="email=email,controller_customer_id=customer",
        pattern=r"^[a-z0-9_]+=[a-z][a-z0-9_-]*(,[a-z0-9_]+=[a-z][a-z0-9_-]*)*$",
        description="Accepted identity types of OpenDSR, each with its kind of identity.",
    )
    witness_policy: str = Field(
        default="",
        description="File of the policy whose witnesses cosign checkpoints; empty: none do.",
    )
    witness_fail: Literal["open", "closed"] = Field(
        default="open",
        description="Without a quorum: open issues certificates late, closed does not.",
    )
    witness_wait_seconds: int = Field(
        default=60,
        gt=0,
        le=MOST_SECONDS,
        description="How long open waits for a quorum before issuing without one, in seconds.",
    )
    witness_seconds: int = Field(
        default=5, gt=0, le=DAY_S, description="How often witnesses are asked, in seconds."
    )
    webhook_allow: str = Field(
        default="",
        description="Non-public hosts and networks that webhooks may reach, comma-separated.",
    )
    callback_allow: str = Field(
        default="", description="The same for callbacks, whose addresses requesters choose."
    )
    callbacks_each: int = Field(
        default=1000,
        ge=0,
        description="Callbacks of open requests that one key or agent may have; 0: none.",
    )
    notice_mail: str = Field(
        default="",
        description="Comma-separated addresses of officers for the daily digest and alarms.",
    )
    notice_language: Literal["en", "de", "fr"] = Field(
        default="en", description="Language of mail to persons and officers."
    )
    oidc_issuer: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="OpenID Connect issuer for sign-in at the console; empty: tokens.",
    )
    oidc_client_id: str = Field(
        default="", description="The console's client id at that issuer."
    )
    oidc_client_secret: SecretStr = Field(
        default=SecretStr(""), description="Its secret; empty for a public client."
    )
    oidc_name_claim: str = Field(
        default="sub",
        min_length=1,
        description="Claim that names people in the log; its values must never be reused.",
    )
    oidc_role_claim: str = Field(
        default="groups", min_length=1, description="Claim with the values that give roles."
    )
    oidc_roles: str = Field(
        default="",
        pattern=r"^((operator|officer|auditor)=[^,=]+(,(operator|officer|auditor)=[^,=]+)*)?$",
        description="Role of each value: operator=VALUE,officer=VALUE,auditor=VALUE.",
    )
    fault: str = Field(
        default="",
        description="Development only: STEP[@N]=kill|raise|freeze plants a fault at a step.",
    )

    @field_validator("data_dir", mode="before")
    @classmethod
    def _refuse_no_directory(cls, given: object) -> object:
        if isinstance(given, str) and (not given.strip() or given.startswith("~")):
            raise ValueError("must be the path of a directory; ~ is not expanded")
        return given

    @field_validator("database_url")
    @classmethod
    def _refuse_other_databases(cls, given: str) -> str:
        return checked_database_url(given) if given else given

    @field_validator("broker_url")
    @classmethod
    def _refuse_other_brokers(cls, given: str) -> str:
        if given == "filesystem://":
            return given
        try:
            url = urlsplit(given)
            usable = given.partition("://")[0] in BROKERS and url.port != 0
            usable = usable and not url.fragment
        except ValueError:
            usable = False
        if not usable:
            raise ValueError(
                f"must be filesystem:// or redis://:PASSWORD@HOST:PORT/NUMBER; {ENCODED}"
            )
        return given

    @field_validator("public_url")
    @classmethod
    def _refuse_unsignable_address(cls, given: str) -> str:
        if given and not PUBLIC_URL.fullmatch(given):
            raise ValueError(
                "must be the http(s) URL that clients see, in small letters, such as "
                "https://erasure.example.org: without spaces, user, query or fragment"
            )
        return given

    @model_validator(mode="after")
    def _refuse_password_of_a_file(self) -> Self:
        secret = self.database_password.get_secret_value()
        if secret and not self.database_url.startswith("postgresql"):
            raise ValueError(
                "LETHE_DATABASE_PASSWORD is set, but SQLite, the default, takes no password: "
                "set LETHE_DATABASE_URL to the server, or unset the password"
            )
        return self

    @model_validator(mode="after")
    def _refuse_closed_to_nobody(self) -> Self:
        if self.witness_fail == "closed" and not self.witness_policy:
            raise ValueError(
                "LETHE_WITNESS_FAIL is closed, but without LETHE_WITNESS_POLICY no witness is "
                "asked and certificates are issued at once: set the policy, or unset both"
            )
        return self

    @model_validator(mode="after")
    def _refuse_unknown_zone(self) -> Self:
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                "LETHE_TIME_ZONE: no such zone; give an IANA name such as Europe/Berlin"
            ) from None
        return self

    @model_validator(mode="after")
    def _refuse_unsafe_mail(self) -> Self:
        if not (text := self.smtp_url.get_secret_value()):
            return self
        try:
            url = urlsplit(text)
            usable = url.scheme in SMTP_SCHEMES and bool(url.hostname) and url.port != 0
        except ValueError:
            usable = False
        # Behind one of these in a password, its host would be cut off.
        if not usable or url.path.strip("/") or url.query or url.fragment:
            raise ValueError(
                "LETHE_SMTP_URL must be smtp://, smtps:// or "
                f"smtp+plain://USER:PASSWORD@HOST:PORT; {ENCODED}"
            )
        plain = url.scheme == "smtp+plain" and url.hostname not in LOOPBACK
        if plain and self.environment == "production":
            raise ValueError(
                "LETHE_SMTP_URL: smtp+plain:// sends addresses and the password unencrypted; "
                "in production only to 127.0.0.1. Use smtp:// (STARTTLS) or smtps://"
            )
        if not self.mail_from:
            raise ValueError("LETHE_MAIL_FROM: set the address that mail is sent from")
        return self

    @model_validator(mode="after")
    def _refuse_unreadable_notices(self) -> Self:
        for name, text in (("WEBHOOK", self.webhook_allow), ("CALLBACK", self.callback_allow)):
            try:
                Allowed.parse(text)
            except ValueError:
                raise ValueError(
                    f"LETHE_{name}_ALLOW: no network or host; write 10.1.0.0/16, or a host's "
                    "name without port and asterisk"
                ) from None
        if any(not re.fullmatch(r"[^\s@<>]+@[^\s@<>]+", one) for one in self.officers):
            raise ValueError("LETHE_NOTICE_MAIL: separate bare e-mail addresses by commas")
        if self.officers and not self.smtp_url.get_secret_value():
            raise ValueError("LETHE_NOTICE_MAIL needs a mail server: set LETHE_SMTP_URL")
        return self

    @model_validator(mode="after")
    def _refuse_half_an_issuer(self) -> Self:
        if self.oidc_issuer and not (self.oidc_client_id and self.oidc_roles):
            raise ValueError(
                "LETHE_OIDC_ISSUER: set LETHE_OIDC_CLIENT_ID and LETHE_OIDC_ROLES too, such as "
                "officer=data-protection"
            )
        return self

    @model_validator(mode="after")
    def _refuse_silos_on_gpus(self) -> Self:
        if self.gpu_queue and self.silos:
            raise ValueError(
                "LETHE_GPU_QUEUE and LETHE_SILOS are both set, but silos train on their own "
                "processors: unset one of them for all processes"
            )
        return self

    @model_validator(mode="after")
    def _refuse_half_a_batch(self) -> Self:
        if (self.batch_min_requests > 1) != (self.batch_max_wait_seconds > 0):
            raise ValueError(
                "set LETHE_BATCH_MIN_REQUESTS (above 1) and LETHE_BATCH_MAX_WAIT_SECONDS "
                "(above 0) together: how many requests wait, and how long at most"
            )
        return self

    @model_validator(mode="after")
    def _refuse_unsafe_production(self) -> Self:
        if self.environment == "development":
            return self
        secrets = {
            "LETHE_MASTER_KEY": self.master_key.get_secret_value(),
            "LETHE_MASTER_KEY_NEXT": self.master_key_next.get_secret_value(),
            "LETHE_PKCS11_PIN": self.pkcs11_pin.get_secret_value(),
            "LETHE_DATABASE_PASSWORD": self.database_password.get_secret_value(),
            "LETHE_OIDC_CLIENT_SECRET": self.oidc_client_secret.get_secret_value(),
            "the password in LETHE_DATABASE_URL": _password(self.database_url),
            "the password in LETHE_BROKER_URL": _password(self.broker_url),
            "the password in LETHE_SMTP_URL": _password(self.smtp_url.get_secret_value()),
        }
        for name, value in secrets.items():
            if value.lower() in PLACEHOLDERS:
                raise ValueError(f"{name} is a placeholder: set a real secret")
        if secrets["LETHE_MASTER_KEY"] and not _is_key(secrets["LETHE_MASTER_KEY"]):
            raise ValueError(
                f"LETHE_MASTER_KEY must be base64 of {MASTER_KEY_BYTES} random bytes: "
                "`openssl rand -base64 32`"
            )
        if self.oidc_issuer.startswith("http://"):
            raise ValueError(
                "LETHE_OIDC_ISSUER: use https, or anybody on the network can sign in"
            )
        if self.fault:
            raise ValueError("LETHE_FAULT is for development only: unset it")
        if self.origin.startswith("localhost"):
            raise ValueError("LETHE_ORIGIN still names localhost: choose the log's public name")
        if not self.public_url:
            raise ValueError(
                "LETHE_PUBLIC_URL must be the http(s) URL that clients see: signatures cover "
                "it, and a Host header is whatever its sender wants it to be"
            )
        if not self.data_dir.is_absolute():
            raise ValueError(
                "LETHE_DATA_DIR must be an absolute path: a process that is started elsewhere "
                "would find no log there, or begin another one"
            )
        return self

    @property
    def resolved_database_url(self) -> str:
        """The database URL with the default and the password filled in."""
        from sqlalchemy.engine import make_url

        url = make_url(self.database_url or f"sqlite:///{self.data_dir / 'lethe.db'}")
        if url.drivername == "postgresql":  # the driver that the server extra installs
            url = url.set(drivername="postgresql+psycopg")
        if password := self.database_password.get_secret_value():
            url = url.set(password=password)
        return url.render_as_string(hide_password=False)

    def made_data_dir(self) -> Path:
        """Create the data directory if it is missing, and return it.

        Raises SettingsError: it cannot be created, or as `require_writable`.
        """
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"LETHE_DATA_DIR: the directory cannot be created ({error.strerror}): create "
                "it, for the user that Lethe runs as"
            ) from None
        self.require_writable()
        return self.data_dir

    def require_writable(self) -> None:
        """Check that this process may write in the data directory, if there is one.

        Raises SettingsError: it may not, as where a volume belongs to root.
        """
        if self.data_dir.exists() and not os.access(self.data_dir, os.W_OK | os.X_OK):
            raise SettingsError(
                f"LETHE_DATA_DIR: user {os.geteuid()}, which Lethe runs as, cannot write "
                "there: make that user the owner of the directory, with mode 0700"
            )

    @property
    def officers(self) -> list[str]:
        """The addresses of LETHE_NOTICE_MAIL."""
        return _listed(self.notice_mail)

    @property
    def webhook_allowed(self) -> "Allowed":
        """LETHE_WEBHOOK_ALLOW, parsed."""
        return Allowed.parse(self.webhook_allow)

    @property
    def callback_allowed(self) -> "Allowed":
        """LETHE_CALLBACK_ALLOW, parsed."""
        return Allowed.parse(self.callback_allow)

    @property
    def keys_dir(self) -> Path:
        """Directory of the log key, the issuer key and the master key."""
        return self.data_dir / "keys"


class Allowed(NamedTuple):
    """Non-public hosts and networks that notices may reach."""

    hosts: tuple[str, ...]
    networks: tuple[IPv4Network | IPv6Network, ...]

    @classmethod
    def parse(cls, text: str) -> "Allowed":
        """Read a comma-separated list. Raises ValueError for a malformed network or host."""
        listed = _listed(text)
        hosts = tuple(one.lower() for one in listed if "/" not in one)
        if not all(HOST.fullmatch(one) for one in hosts):  # it would allow nothing
            raise ValueError("a host has no port and no pattern")
        return cls(hosts, tuple(ip_network(one) for one in listed if "/" in one))


def _complaint(error: dict[str, Any]) -> str:
    # pydantic's messages of our field types name what is allowed, never what was given. A
    # pattern or a bound alone does not say what for, nor in which unit.
    message, known = str(error["msg"]), Settings.model_fields
    if error["type"] != "value_error":
        message += "".join(f": {known[name].description}" for name in error["loc"])
    names = [f"LETHE_{name}".upper() for name in error["loc"]]
    return ": ".join([*names, message.removeprefix("Value error, ")])


def checked_database_url(given: str) -> str:
    """Return the URL of a database that Lethe works on. Raises ValueError for any other."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(given)
    except (ArgumentError, ValueError):  # its text may repeat a part of the password
        url = None
    if url is None or url.drivername not in DRIVERS:
        raise ValueError("must be sqlite:///FILE or postgresql://USER@HOST/DATABASE")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ValueError("SQLite must be a file: a database in memory ends with its process")
    return given


def _misspelt(environment: Mapping[str, str]) -> str | None:
    """Return the complaint about a variable that is nearly a setting, None if there is none.

    It would be ignored, and its default hold: another log, or no witness. Variables that
    resemble no setting may be anybody's: Kubernetes sets LETHE_SERVICE_HOST and more.
    """
    for name in environment:
        word = name.upper().removeprefix("LETHE_")
        if word == name.upper() or OTHERS.fullmatch(word):
            continue
        known = [field.upper() for field in Settings.model_fields]
        if word not in known and (near := get_close_matches(word, known, 1, SIMILAR)):
            return f"{name} is no setting: write LETHE_{near[0]}, or unset it"
    return None


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _password(url: str) -> str:
    try:
        return urlsplit(url).password or ""
    except ValueError:  # connecting to it reports what is wrong
        return ""


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == MASTER_KEY_BYTES
    except (binascii.Error, ValueError):
        return False
