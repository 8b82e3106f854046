"""All pages of the console, in the order in which their addresses are looked up."""

from fastapi import APIRouter

from app.console import cases, entrance, nowhere, queue

router = APIRouter()
for part in (entrance.home, entrance.routes, queue.routes, cases.routes, nowhere.routes):
    router.include_router(part)
