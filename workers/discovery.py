"""Self-filling registries: each file of a package registers what it implements.

A new method or check is one file and its line in `lethe/catalogue.py`; there is no second list
that could omit it.
"""

import importlib
import pkgutil


def import_room(package: str) -> None:
    """Import every file of a package, so that each registers what it implements.

    Sub-packages are not imported: some need torch although the package itself does not.
    """
    found = importlib.import_module(package)
    for module in pkgutil.iter_modules(found.__path__, f"{package}."):
        if not module.ispkg:
            importlib.import_module(module.name)
