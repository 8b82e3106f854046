"""The verdict on a certificate on the wire."""

from typing import Literal

from app.schemas.base import Wire


class StepView(Wire):
    """One numbered step of the verification."""

    number: int
    name: str
    passed: bool
    detail: str


class VerdictView(Wire):
    """PASS only if every step passed."""

    result: Literal["PASS", "FAIL"]
    steps: list[StepView]
