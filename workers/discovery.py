"""Registries that fill themselves: a file in a room registers what it implements.

So a further method or check is its own file and its line in `lethe/catalogue.py`, and no
list in between can leave it out.
"""

import importlib
import pkgutil


def import_room(package: str) -> None:
    """Import every file of a package, so that each has registered what it implements.

    Not those of its sub-packages: some need torch where the room itself does not.
    """
    found = importlib.import_module(package)
    for module in pkgutil.iter_modules(found.__path__, f"{package}."):
        if not module.ispkg:
            importlib.import_module(module.name)
