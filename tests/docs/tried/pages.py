"""How each page is tried: what it takes for granted, and what its placeholders stand for."""

from tests.docs.tried import (
    pages_of_families,
    pages_of_models,
    pages_of_operation,
    pages_of_others,
    pages_of_people,
)
from tests.docs.tried.desk import Page

PAGES: dict[str, Page] = {
    **pages_of_people.PAGES,
    **pages_of_families.PAGES,
    **pages_of_models.PAGES,
    **pages_of_operation.PAGES,
    **pages_of_others.PAGES,
}
