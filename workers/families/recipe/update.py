"""What every fit has: its names in certificates, its limits, and the error that is retried."""

from app.service.context import Services
from lethe.errors import LetheError
from models import Model
from workers.training.recipes.process import Limits
from workers.training.recipes.recipe import Recipe

METHOD, VERSION, CLAIM = "refit", "1", "exact-retrained"
STATE = "recipe-state/1"


class NotFittedError(LetheError):
    """A fit that must succeed failed: it is retried, and an operator is told.

    No request is refused because an operator's limit is too low.
    """

    slug, title, status = "not-fitted", "The model could not be fitted within its limits", 503


def recipe_of(model: Model) -> Recipe:
    """Return the recipe a model was registered with. Raises RefusedError."""
    return Recipe.parse(model.config["recipe"])


def limits(services: Services) -> Limits:
    """Return the limits of a fit in this installation."""
    settings = services.settings
    return Limits(settings.fit_seconds, settings.fit_memory_bytes, settings.fit_output_bytes)
