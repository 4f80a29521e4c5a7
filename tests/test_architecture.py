"""The rules of the house: who may import whom, and which names are public."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import house
import mental_accounts

SOURCE = Path(mental_accounts.__file__).parent
REPOSITORY = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "studies", "benchmarks", "examples")

# Data flow one way, and so do imports. A room may always import itself.
BASE = {
    "account_kinds",
    "action_masks",
    "action_spec",
    "channels",
    "checks",
    "errors",
    "extras",
    "fields",
    "files",
    "flattening",
    "folder_lock",
    "lazy_names",
    "machine",
    "markdown_text",
    "module_paths",
    "number_checks",
    "observation_spec",
    "old_configs",
    "return_text",
    "standardising",
    "zoo",
}
SHARED = BASE | {"account_options", "accounts", "policy_options", "spaces"}
LEARNING = SHARED | {"config", "data", "policy", "presets", "value_options"}
RUNS = LEARNING | {"changes", "learning"}
ALLOWED = {
    "account_kinds": set(),
    "account_options": {"account_kinds", "action_spec", "channels", "fields", "number_checks"},
    "action_masks": set(),
    "action_spec": {"fields", "number_checks"},
    "channels": {"errors"},
    "checks": {"number_checks"},
    "errors": set(),
    "extras": set(),
    "fields": set(),
    "files": set(),
    "flattening": {"errors", "fields", "observation_spec"},
    "folder_lock": {"errors"},
    "lazy_names": set(),
    "machine": {"errors"},
    "markdown_text": set(),
    "module_paths": set(),
    "number_checks": set(),
    "observation_spec": {"fields"},
    "old_configs": set(),
    "return_text": set(),
    "standardising": set(),
    "accounts": {"account_kinds", "channels", "checks", "standardising"},
    "policy_options": {"account_options", "action_spec", "fields", "number_checks", "observation_spec"},
    "config": {"account_options", "fields", "number_checks", "policy_options", "value_options"},
    "changes": {"config", "errors"},
    "presets": {"account_options", "config", "errors", "policy_options", "value_options"},
    "spaces": {"accounts", "action_masks", "action_spec", "checks", "flattening"},
    "zoo": {"errors", "fields", "files"},
    "value_options": {"fields", "number_checks"},
    "policy": SHARED,
    "environments": set(),
    "data": SHARED | {"environments", "policy"},
    "learning": LEARNING | {"environments"},
    "study": RUNS,
    "inspect": LEARNING | {"learning"},
    "report": LEARNING | {"learning", "inspect"},
    "integrations": SHARED,
    "export": SHARED | {"policy"},
    "front_door": RUNS | {"study", "inspect", "report"},
    "commands": LEARNING | {"learning", "study", "inspect", "report", "export", "front_door"},
    "cli": LEARNING | {"learning", "commands"},
}
PURE_TORCH = {"torch", "numpy", "scipy"}  # all that accounts may import beside the standard library

PUBLIC = {
    "AccountsConfig",
    "ActionSpec",
    "DecisionTransformer",
    "PolicyConfig",
    "BiasScale",
    "CanonicalEWA",
    "CanonicalLedger",
    "DiscreteCodebook",
    "EWA",
    "GridCodebook",
    "HierarchicalCodebook",
    "KMeansCodebook",
    "Ledger",
    "ProductCodebook",
    "RewardTransform",
    "__version__",
    "CallbackError",
    "CheckpointWritten",
    "Evaluation",
    "EvaluationEnded",
    "Event",
    "ExplorationEnded",
    "IterationEnded",
    "Message",
    "ModelConfig",
    "Run",
    "RunBegan",
    "RunEnded",
    "STOP",
    "StageBegan",
    "StepDone",
    "TrainConfig",
    "Trajectories",
    "UpdateDone",
    "UsageError",
    "compare",
    "evaluate",
    "load_task",
    "resume",
    "train",
    "attention_drift",
    "column_bias",
    "drift_bound",
    "now_bias",
    "paper_drift_bound",
    "range_drift_bound",
}


def imported_modules(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import; write it out, so that the rule can be checked"
            found.add(node.module or "")
    return found


def room_of(name: str) -> str:
    return Path(name).stem


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_flow_one_way(file: Path) -> None:
    room = room_of(file.relative_to(SOURCE).parts[0])
    if room in ("__init__", "__main__"):
        return
    assert room in ALLOWED, f"{room} is a new room: say in this test what it may import"
    for module in imported_modules(file):
        if module.split(".")[0] == "mental_accounts":
            target = module.partition(".")[2].partition(".")[0]  # "" is the package itself, for its version
            allowed = {room, *ALLOWED[room], *([""] if room in ("cli", "learning") else [])}
            assert target in allowed, f"{file.name} of {room} may not import {module}"
        elif room == "accounts":
            assert module.split(".")[0] in PURE_TORCH | sys.stdlib_module_names, f"accounts may not import {module}"


def test_the_map_of_the_house_is_up_to_date() -> None:
    found = house.page(house.read_house(), house.PAGE.read_text())
    assert found == house.PAGE.read_text(), "docs/architecture.md is not what the source says: run `make house`"


def test_no_module_imports_itself_through_others() -> None:
    assert house.read_house().cycle == []


@pytest.mark.parametrize(
    ("files", "cycle"),
    [
        ({"a.py": "import mental_accounts.b", "b.py": "def f():\n    from mental_accounts import a"}, {"a", "b"}),
        ({"r/__init__.py": "from mental_accounts.r.a import x", "r/a.py": "from mental_accounts.r import y"}, {"r"}),
        ({"__init__.py": "from mental_accounts.a import x", "a.py": "import mental_accounts"}, {"mental_accounts"}),
        (
            {
                "r/a.py": "import mental_accounts.s.b",
                "r/c.py": "",
                "s/b.py": "",
                "s/d.py": "import mental_accounts.r.c",
            },
            {"r", "s"},  # no cycle of modules, but one of rooms
        ),
        (
            {
                "a.py": "from mental_accounts import b",
                "b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mental_accounts.a",
            },
            set(),
        ),
    ],
)
def test_cycles_are_found(files: dict[str, str], cycle: set[str], tmp_path: Path) -> None:
    for name in {"__init__.py", *files, *(f"{name.partition('/')[0]}/__init__.py" for name in files if "/" in name)}:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(files.get(name, ""))
    found = set(house.read_house(tmp_path).cycle)
    assert cycle <= found
    assert bool(found) == bool(cycle)


def test_what_a_room_exports_is_counted_for_the_module_that_has_it(tmp_path: Path) -> None:
    files = {
        "__init__.py": "", "r/__init__.py": "from mental_accounts.r.a import thing",
        "r/a.py": '"""First line.\n\nMore."""', "b.py": "from mental_accounts.r import thing",
        "c.py": "from mental_accounts.r import a\nimport mental_accounts.b",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = house.read_house(tmp_path)
    assert found.imports["b"] == {"r.a"}
    assert house.fan_in(found.imports, "r.a") == 3
    assert found.rooms == {"b": {"r"}, "c": {"b", "r"}, "r": set()}
    assert house.reduced(found.rooms)["c"] == {"b"}
    assert "| `a` | First line. | ≤ 50 | 3 | 0 |" in house.tables(found)
    assert "    c --> b\n" in house.drawing(found)


def test_no_two_files_share_a_name() -> None:
    """But for those that Python and pytest name themselves."""
    files = [file for folder in FOLDERS for file in (REPOSITORY / folder).rglob("*.py")]
    names = [file.name for file in files if file.name not in ("__init__.py", "__main__.py", "conftest.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
    assert len(names) > 150


def test_the_public_names() -> None:
    assert set(mental_accounts.__all__) == PUBLIC
    assert all(hasattr(mental_accounts, name) for name in PUBLIC)


def test_public_names_come_from_where_type_checkers_see_them() -> None:
    """The imports under TYPE_CHECKING and the table of lazy ones agree."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {alias.name: node.module for node in block.body for alias in node.names}
    assert set(declared) == PUBLIC - {"__version__"}
    for name, module in declared.items():
        assert getattr(mental_accounts, name) is getattr(importlib.import_module(module), name), name
    assert set(dir(mental_accounts)) >= PUBLIC
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        mental_accounts.trian  # noqa: B018


def test_processes_that_step_environments_do_not_wait_for_torch() -> None:
    code = "import sys, runpy; runpy.run_path(sys.argv[1], run_name='worker'); print('torch' in sys.modules)"
    worker = SOURCE / "learning" / "stepping.py"
    done = subprocess.run([sys.executable, "-P", "-c", code, worker], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_importing_is_light_and_silent() -> None:
    every = ("torch", "numpy", "scipy", "gymnasium", "matplotlib")
    for module, heavy in (
        ("mental_accounts", every),
        ("mental_accounts.config", every),
        ("mental_accounts.presets", every),
        ("mental_accounts.cli", every),
        ("mental_accounts.front_door.train", ("scipy", "matplotlib", "torch._dynamo")),
    ):
        code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]", module
