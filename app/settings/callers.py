"""Limits of the API: what callers may send, and how much of it is held at a time."""

from pydantic import Field

from app.settings.group import DAY_S, SettingsGroup


class CallerSettings(SettingsGroup):
    """How often callers may call, and how much they may send and have waiting."""

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
    max_scope_records: int = Field(
        default=10_000,
        gt=0,
        description="Most records that the body of an erasure request may name.",
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
