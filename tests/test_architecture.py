"""The shape of the package: who imports whom, what is public, what stays quick."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import interp

ROOT = Path(__file__).parent.parent


ROOMS = [  # a room imports only from those that stand before it
    "errors", "deprecated", "files", "hooks", "figures", "gpt", "results", "lesson", "ground_truth",
    "data", "training", "store", "stream", "analysis", "pages", "cli",
]  # fmt: skip
LONG_FILES = {  # over 250 lines, each with its reason
    "interp/analysis/causal/effects.py": "a third of it is the docstring of one function",
    "interp/analysis/causal/patching_runs.py": "the ways to put one run into another, side by side",
    "interp/lesson/ladder.py": "the lesson's models, each one step from the one above it",
    "interp/lesson/reference.py": "the textbook twin, read once from top to bottom",
    "interp/stream/interventions.py": "what an intervention is, says, and does",
}
LONGEST_FILE, LONGEST_FUNCTION, MOST_LONG_FILES = 250, 50, 5
LARGEST_ROOM = 0.25  # of all lines


def modules() -> list[Path]:
    return sorted((ROOT / "interp").rglob("*.py"))


def name_of_module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of_module(path) for path in modules()}


def imports(path: Path) -> set[str]:
    """The modules that a file imports anywhere, also late or for type checkers only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(names | ({node.module} if names - MODULES else set()))
    return found


def room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "interp" and len(parts) > 1 else None


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_from_those_before_it(path: Path) -> None:
    own = room(name_of_module(path))
    for module in imports(path) if own else ():
        other = room(module)
        if own and other in ROOMS:
            assert ROOMS.index(other) <= ROOMS.index(own), f"{own} imports {module}"


def test_every_module_stands_in_a_room() -> None:
    assert {room(name_of_module(path)) for path in modules()} - {None} == set(ROOMS)


def test_no_circle_of_imports_also_within_rooms() -> None:
    names = {name_of_module(path): path for path in modules()}
    graph = {name: {m for m in imports(path) if m in names and m not in (name, "interp")}
             for name, path in names.items()}  # fmt: skip
    tuple(graphlib.TopologicalSorter(graph).static_order())  # a circle is a CycleError


def test_nothing_is_imported_by_a_string_but_the_public_names() -> None:
    """A string is an import that no reader and no graph sees."""
    for path in modules():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"import_module|__import__", text), path
        assert ("lazy_loader" in imports(path)) == (name_of_module(path) == "interp"), path


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, source: list[str]) -> int:
    """The lines of a function without its docstring, comments and blank lines."""
    skipped: set[int] = set()
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            skipped.update(range(first.lineno, (first.end_lineno or 0) + 1))
    lines = range(node.lineno, (node.end_lineno or 0) + 1)
    return sum(
        i not in skipped and bool(source[i - 1].strip()) and source[i - 1].strip()[0] != "#"
        for i in lines
    )


def test_functions_are_short() -> None:
    for path in [*modules(), *(ROOT / "analyses").glob("*.py")]:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                n = code_lines(node, text.splitlines())
                most = 40 if path.parent.name == "analyses" and node.name == "main" else 50
                assert n <= most, f"{path}: {node.name} has {n} lines"


def test_files_are_short_or_say_why_not() -> None:
    long = {str(path.relative_to(ROOT)) for path in modules()
            if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST_FILE}  # fmt: skip
    assert long == set(LONG_FILES)
    assert len(long) <= MOST_LONG_FILES


def test_no_room_is_half_the_house() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    by_folder = Counter[Path]()
    for path, n in lines.items():
        by_folder[path.parent] += n  # a folder's own subfolders count apart
    folder, most = by_folder.most_common(1)[0]
    assert most <= LARGEST_ROOM * sum(lines.values()), folder


def test_only_hooks_imports_transformer_lens() -> None:
    users = {p.name for p in modules() if any("transformer_lens" in m for m in imports(p))}
    assert users == {"hooks.py"}


def test_only_figures_imports_matplotlib() -> None:
    for path in modules():
        drawing = any(m.startswith("matplotlib") for m in imports(path))
        assert not drawing or path.parent.name in ("figures", "results"), path
    code = "import sys, interp; interp.Result; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"  # a result names a figure's type only


def test_figures_know_no_analysis() -> None:
    for path in (ROOT / "interp" / "figures").glob("*.py"):
        ours = {room(m) for m in imports(path)} - {None}
        assert ours <= {"figures", "files", "errors"}, path


def test_studies_use_the_public_names_only() -> None:
    for path in (ROOT / "analyses").glob("*.py"):
        ours = {module for module in imports(path) if module.split(".")[0] == "interp"}
        assert {m.split(".")[0] for m in ours} <= {"interp"}
        assert all(m == "interp" or m.removeprefix("interp.") in interp.__all__ for m in ours), path


def test_public_names() -> None:
    text = (ROOT / "interp" / "__init__.pyi").read_text(encoding="utf-8")
    assert set(interp.__all__) == set(re.findall(r"(\w+) as \1", text))
    for name in interp.__all__:
        assert getattr(interp, name).__doc__, name
    with pytest.raises(AttributeError, match="HookedGTP"):
        getattr(interp, "HookedGTP")  # noqa: B009  # a name that no type checker would let pass


def test_no_package_outside_interp() -> None:
    tracked = [p for p in ROOT.rglob("__init__.py") if not any(s.startswith(".") for s in p.parts)]
    assert {p.relative_to(ROOT).parts[0] for p in tracked} == {"interp"}


@pytest.mark.parametrize("statement", ["import interp", "from interp.cli import app"])
def test_heavy_imports_wait(statement: str) -> None:
    code = f"{statement}; import sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


HEAVY = ["torch", "transformer_lens", "numpy", "pandas", "matplotlib", "pydantic"]
