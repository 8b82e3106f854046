"""What operators see of the service: log lines, metrics and traces."""

from typing import Literal

from pydantic import Field

from app.settings.group import SettingsGroup


class ObservabilitySettings(SettingsGroup):
    """Log lines, metrics and traces."""

    log_format: Literal["text", "json"] = Field(
        default="text", description="Log lines on standard error: text or one JSON object each."
    )
    log_level: Literal["warning", "info"] = Field(
        default="warning",
        description="info adds a line for each call and for each stage of a job.",
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
    otel_endpoint: str = Field(
        default="",
        pattern=r"^(https?://[^\s?#]+)?$",
        description="URL of the collector for traces, OTLP over HTTP; empty: none.",
    )
