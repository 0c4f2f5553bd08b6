"""The arrows between modules: downwards only, without cycles, and torch where it belongs."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import determined

_ROOT = Path(determined.__file__).parent

# From the ground up. A module imports from lines above its own, and from its own package.
_LINES = (
    "_os",
    "_contracts.checkpoint_layout _contracts.json_numbers "
    "_contracts.log_index _contracts.retention",
    "_contracts.tensor_hashes",
    "_code.ignore_rules _code.source_files _code.trial_code",
    "errors _info _version gpu _code",
    "_legacy.distributed_backend _legacy.entrypoint _legacy.experiment_config _legacy.hparams",
    "common.check common._logging common.api config",
    "platform.search",
    "_contracts common.util",
    "util",
    "storage tensorboard journal",
    "store",
    "common",
    "core",
    "_legacy",
    "load",
    "__init__",
    "pytorch",
    "_loops",
    "transformers lightning",
    "platform.rules platform.homes",
    "platform.machines",
    "platform.runs",
    "platform.queries",
    "platform.supervisor",
    "platform.service platform.maintenance",
    "platform.tensorboards platform.debugging platform.trackers",
    "platform",
    "launch",
    "exec experimental horovod",
    "selftest",
    "common.experimental",
    "dashboard mcp",
    "cli",
    "demo",
)
_MAY_IMPORT_TORCH = (
    "determined.pytorch",
    "determined.transformers",
    "determined.lightning",
    "determined._loops.random_state",
    "determined.tensorboard.metric_writers.pytorch",
    "determined.launch.torchrun",
    "determined.selftest",
)

_DOZEN = 12
# Packages with more modules at their top, and why.
_LARGER = {
    "determined.cli.experiment": "one module for each verb, or group of verbs, of the largest noun",
    "determined.cli": "one module per noun of the command line",
    "determined.dashboard.api": "one module per subject of the API",
    "determined.experimental._client": "one module per class of the client",
}

# Folders of tests that mirror no package, and what they are about.
_TESTS_OF_NO_PACKAGE = {
    "accelerator": "a simulated device, and what is trained on it",
    "benchmarks": "the benchmarks",
    "dashboard/browser": "the dashboard's page in a browser",
    "dashboard/js": "the page's pure functions",
    "docs": "the documentation",
    "exactness": "generated trainings, cut and resumed",
    "examples": "the examples",
    "faults": "what goes wrong around the product: kills, full disks, hostile files",
    "tools": "what writes pages and pictures of the documentation",
}


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(_ROOT.rglob("*.py")):
        if _ROOT / "demo" / "files" in path.parents:
            continue  # a user's script, which imports us from outside
        parts = path.relative_to(_ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def nodes(tree: ast.AST, *, when_imported: bool) -> Iterator[ast.AST]:
    """Walk over a module; with `when_imported`, leave out what runs later."""
    for child in ast.iter_child_nodes(tree):
        later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue  # names for type checkers: nothing is imported
        if when_imported and isinstance(child, later):
            continue
        yield child
        yield from nodes(child, when_imported=when_imported)


def imports(name: str, *, when_imported: bool = False) -> set[str]:
    """The modules that a module names in its import statements."""
    found: set[str] = set()
    tree = ast.parse(modules()[name].read_text())
    for node in nodes(tree, when_imported=when_imported):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports by a relative path."
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(t if t in modules() else str(node.module) for t in targets)
    return found


def line_of(name: str) -> tuple[int, str]:
    """The line a module stands on, and the word that it goes by there."""
    path = name.partition(".")[2] or "__init__"
    words = {word: number for number, line in enumerate(_LINES) for word in line.split()}
    fitting = [word for word in words if path == word or path.startswith(word + ".")]
    assert fitting, f"Say in _LINES where {name} belongs."
    word = max(fitting, key=len)
    return words[word], word


def test_imports_go_downwards_only() -> None:
    wrong = [
        f"{name} imports {other}"
        for name in modules()
        for other in imports(name)
        if other in modules()
        and line_of(other)[1] != line_of(name)[1]
        and line_of(other)[0] >= line_of(name)[0]
    ]
    assert wrong == []


def packages_of(name: str) -> set[str]:
    """The packages that a module lies in: their roots run before it does."""
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}


def test_no_module_imports_a_package_that_it_lies_in() -> None:
    own = {name: imports(name) & packages_of(name) for name in modules()}
    assert {name: found for name, found in own.items() if found} == {}


def test_there_are_no_cycles_also_through_package_roots_and_late_imports() -> None:
    graph = {}
    for name in modules():
        named = imports(name) & modules().keys()
        roots = set().union(*map(packages_of, named)) - packages_of(name) - {name}
        graph[name] = named | roots
    tuple(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names one


def test_torch_is_imported_by_the_training_library_only() -> None:
    heavy = [
        name
        for name in modules()
        if not name.startswith(_MAY_IMPORT_TORCH)
        and any(i.partition(".")[0] == "torch" for i in imports(name, when_imported=True))
    ]
    assert heavy == []


def test_a_package_has_at_most_a_dozen_modules_at_its_top() -> None:
    tops: dict[str, int] = {}
    for name, path in modules().items():
        if path.name not in {"__init__.py", "__main__.py"}:
            package = name.rpartition(".")[0]
            tops[package] = tops.get(package, 0) + 1
    large = {package for package, count in tops.items() if count > _DOZEN}
    assert large == _LARGER.keys()


def test_no_test_imports_another_and_their_names_are_short() -> None:
    wrong = []
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and ".test_" in str(node.module):
                wrong.append(f"{path.name} imports {node.module}")
            if isinstance(node, ast.FunctionDef) and len(node.name) >= 80:
                wrong.append(f"{path.name}: {node.name}")
    assert wrong == []


def test_folders_of_tests_mirror_packages() -> None:
    tests = Path(__file__).parent
    packages = {path.parent.relative_to(_ROOT) for path in _ROOT.rglob("__init__.py")}
    mirrored = {Path(*(part.lstrip("_") for part in package.parts)) for package in packages}
    others = {
        path.parent.relative_to(tests).as_posix()
        for path in tests.rglob("test_*.py")
        if path.parent.relative_to(tests) not in mirrored
    }
    within = {name for name in others for top in _TESTS_OF_NO_PACKAGE if name.startswith(f"{top}/")}
    assert others - within == _TESTS_OF_NO_PACKAGE.keys()


def test_files_that_the_page_about_architecture_names_exist() -> None:
    root = Path(__file__).parents[1]
    page = (root / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"(?<![\w/.])(?:\.\./)*((?:\w+/)*\w+\.py)\b", page))
    paths = [p.as_posix() for top in ("src", "tests", "tools") for p in (root / top).rglob("*.py")]
    missing = {name for name in named if not any(path.endswith(f"/{name}") for path in paths)}
    assert missing == {"cli/NOUN.py", "dashboard/api/SUBJECT.py"}  # which stand for each of them


def test_the_index_of_test_helpers_names_each_of_them() -> None:
    folder = Path(__file__).parent / "support"
    index = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    listed = {line.split()[0] for line in index.splitlines() if line.startswith("    ")}
    assert listed == {path.stem for path in folder.glob("*.py")} - {"__init__"}
