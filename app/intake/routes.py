"""All routes of the page."""

from fastapi import APIRouter

from app.intake import asking, files, following

router = APIRouter()
for part in (asking, following, files):
    router.include_router(part.routes)
