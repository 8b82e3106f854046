"""Measures which lines of the product run, faster than a tracer: `make coverage`.

Up to Python 3.11 a tracer is called at each line of every module that runs, SQLAlchemy's and
Hypothesis's too, which took as long again as the tests. So in the processes of the tests the
tracer of coverage.py is stopped, and the product's modules are compiled with a store before each
statement. What ran is added to the data of coverage.py, which still traces the processes that
the tests start, combines, reports and compares with the floor. An `except` or a `case` that did
not match counts as a line that did not run.
"""

import ast
import atexit
import os
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

PRODUCT = ("app", "lethe", "migrations", "models", "workers")
HITS: dict[str, list[int]] = {}  # by path: 1 for each probe that ran
LINES: dict[str, list[set[int]]] = {}  # by path: the lines whose statements a probe stands for
_measured: list[Any] = []  # the stopped instance of coverage.py, which is not its current one
_BEGIN = "__probes__ = __import__({module!r}, fromlist=['HITS']).HITS[{path!r}]"


class Probing(ast.NodeTransformer):
    """Puts a probe before each statement; `lines` has the lines of each."""

    def __init__(self) -> None:
        self.lines: list[set[int]] = []

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Put probes into each block of statements of this node, and of those within."""
        super().generic_visit(node)
        for name, block in ast.iter_fields(node):
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, self._probed(node, name, block))
        return node

    def _probed(self, node: ast.AST, name: str, block: list[Any]) -> list[Any]:
        probed: list[Any] = []
        entered = _header(node) if name == "body" else set()
        for statement in block:
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                entered.add(statement.lineno)  # must stay before any other statement
            elif not probed and _is_docstring(node, statement):
                pass
            else:
                decorators = getattr(statement, "decorator_list", [])
                lines = {one.lineno for one in decorators} | {statement.lineno}
                probe = ast.parse(f"__probes__[{len(self.lines)}] = 1").body[0]
                for part in ast.walk(probe):
                    if "lineno" in part._attributes:
                        ast.copy_location(part, statement)
                self.lines.append(lines | entered)
                entered = set()
                probed.append(probe)
            probed.append(statement)
        return probed


def _header(node: ast.AST) -> set[int]:
    """Return the line that runs if, and only if, this block is entered."""
    if isinstance(node, ast.ExceptHandler):
        return {node.lineno}
    return {node.pattern.lineno} if isinstance(node, ast.match_case) else set()


def _is_docstring(node: ast.AST, statement: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def compiled(source: bytes | str, path: str) -> CodeType:
    """Compile a module with probes; HITS and LINES have them by its path."""
    probing = Probing()
    tree: ast.Module = probing.visit(ast.parse(source, path))
    first = 0
    while first < len(tree.body) and (
        _is_docstring(tree, tree.body[first])
        or (
            isinstance(future := tree.body[first], ast.ImportFrom)
            and future.module == "__future__"
        )
    ):
        first += 1
    tree.body[first:first] = ast.parse(_BEGIN.format(module=__name__, path=path)).body
    LINES[path], HITS[path] = probing.lines, [0] * len(probing.lines)
    return compile(tree, path, "exec", dont_inherit=True)


def probe(root: Path) -> None:
    """Have the product's modules in `root` compiled with probes, once in this process.

    What is stored in `__pycache__` is neither read nor written. Alembic loads its revisions by
    their paths: so it is the loader that knows the product, and no finder.
    """
    own = tuple(f"{root / name}{os.sep}" for name in PRODUCT)
    others: Callable[[SourceFileLoader, str], CodeType | None] = SourceFileLoader.get_code
    codes: dict[str, CodeType] = {}  # a module that is loaded again keeps its probes

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        path = loader.get_filename(fullname)
        if not path.startswith(own):
            return others(loader, fullname)
        if path not in codes:
            codes[path] = compiled(loader.get_data(path), path)
        return codes[path]

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def measure() -> None:
    """Measure this process with probes, if coverage.py measures it."""
    coverage = sys.modules.get("coverage")
    measured = None if coverage is None else coverage.Coverage.current()
    if measured is None:
        return
    measured.stop()
    _measured.append(measured)
    probe(Path(__file__).resolve().parent.parent)
    atexit.register(record)


def ran(path: str) -> set[int]:
    """Return the lines of a module that ran."""
    return {
        line
        for hit, lines in zip(HITS[path], LINES[path], strict=True)
        if hit
        for line in lines
    }


def record() -> None:
    """Add what ran to the data of coverage.py, and write them.

    A process that takes more than ten seconds to end is killed by xdist, and what coverage.py
    writes at the end is lost.
    """
    for measured in _measured:
        measured.get_data().add_lines({path: ran(path) for path in HITS})
        measured.save()
