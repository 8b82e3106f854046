"""All pages of the console, in the order in which their addresses are looked up."""

from fastapi import APIRouter

from app.console import (
    audits,
    cases,
    certificates,
    entrance,
    health,
    log,
    models,
    nowhere,
    oidc,
    opening,
    queue,
    reports,
)

router = APIRouter()
router.include_router(entrance.home)
for part in (
    entrance,
    oidc,
    opening,
    queue,
    cases,
    certificates,
    models,
    log,
    audits,
    reports,
    health,
    nowhere,
):
    router.include_router(part.routes)
