"""The import graph of the package, from its source: `make house`.

    python studies/house.py          # prints it in short, and writes its part of docs/architecture.md

A room is a folder of src/mental_accounts, or a module outside the folders. All imports that are ever executed count,
including those inside functions; those only for type checking do not. There must be no cycle, neither of modules nor of
rooms. A test checks docs/architecture.md against this script; line counts are rounded to steps of 50, so that not every
edit makes it stale.

It is here because scripts in studies/ are typed and tested like the package, and it is a study of the source.
"""

import ast
import graphlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from marked_pages import between

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "mental_accounts"
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = "mental_accounts"
DOORS = ("", "__main__")
"""The package itself and `python -m`: they import rooms, but are not rooms themselves."""
GRAPH_BEGIN, GRAPH_END = "<!-- graph: made by studies/house.py -->", "<!-- end of graph -->"
ROOMS_BEGIN, ROOMS_END = "<!-- rooms: made by studies/house.py -->", "<!-- end of rooms -->"
STEP = 50

Graph = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Module:
    """One file: `policy.heads`; a folder's __init__.py is `policy`."""

    name: str
    words: str
    """The first line of its docstring."""
    lines: int
    imports: frozenset[tuple[str, str]]
    """Modules of the package and the name imported from each, as written."""
    is_folder: bool

    @property
    def room(self) -> str:
        """The folder, or the module itself."""
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class House:
    """All modules by name."""

    modules: Mapping[str, Module]

    @cached_property
    def written(self) -> Graph:
        """Module -> modules, as imports are written: a name exported by a folder counts as the folder's."""
        return {
            name: frozenset(self._target(*pair) for pair in module.imports) for name, module in self.modules.items()
        }

    @cached_property
    def imports(self) -> Graph:
        """Module -> modules that it imports from: a name exported by a folder counts as the defining module's."""
        found = {}
        for name, module in self.modules.items():
            sources = {self._source(*pair) for pair in module.imports}
            found[name] = frozenset(sources - {name})
        return found

    @cached_property
    def rooms(self) -> Graph:
        """Room -> other rooms that it imports."""
        names = sorted({module.room for module in self.modules.values()} - set(DOORS))
        return {
            room: frozenset(
                self.modules[target].room
                for name, targets in self.imports.items()
                for target in targets
                if self.modules[name].room == room and self.modules[target].room not in (room, *DOORS)
            )
            for room in names
        }

    @property
    def cycle(self) -> list[str]:
        """Modules, or rooms, in an import cycle; [] if there is none."""
        for graph in (self.written, self.imports, self.rooms):
            try:
                graphlib.TopologicalSorter(graph).prepare()
            except graphlib.CycleError as error:
                return [str(name) or PACKAGE for name in error.args[1]]
        return []

    def of(self, room: str) -> list[Module]:
        """The modules of a room, without the __init__.py of a folder."""
        found = [module for module in self.modules.values() if module.room == room and not module.is_folder]
        return sorted(found, key=lambda module: module.name)

    def _target(self, module: str, name: str) -> str:
        inner = f"{module}.{name}".lstrip(".")
        return inner if inner in self.modules else module

    def _source(self, module: str, name: str) -> str:
        target = self._target(module, name)
        if target == module and self.modules[module].is_folder:
            for other, exported in self.modules[module].imports:
                if exported == name:
                    return self._source(other, exported)
        return target


def read_house(source: Path = SOURCE) -> House:
    """Every module under `source`."""
    modules = {}
    for file in sorted(source.rglob("*.py")):
        is_folder = file.name == "__init__.py"
        parts = file.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if is_folder else parts)
        text = file.read_text()
        tree = ast.parse(text)
        words = (ast.get_docstring(tree) or "").partition("\n")[0]
        modules[name] = Module(name, words, len(text.splitlines()), _imports(tree), is_folder)
    return House(modules)


def _imports(tree: ast.Module) -> frozenset[tuple[str, str]]:
    found = set()
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
    inner = {(name.partition(".")[2], taken) for name, taken in found if name.partition(".")[0] == PACKAGE}
    return frozenset(inner)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    yield node
    types_alone = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    for child in [] if types_alone else ast.iter_child_nodes(node):
        yield from _executed(child)


def reached(graph: Graph, name: str) -> set[str]:
    """All nodes reachable from a node."""
    found: set[str] = set()
    waiting = set(graph[name])
    while waiting:
        one = waiting.pop()
        found.add(one)
        waiting |= graph[one] - found
    return found


def reduced(graph: Graph) -> Graph:
    """The transitive reduction: without edges that are implied by longer paths."""
    return {
        name: frozenset(
            target for target in targets if not any(target in reached(graph, other) for other in targets - {target})
        )
        for name, targets in graph.items()
    }


def fan_in(graph: Graph, name: str) -> int:
    """The number of importers."""
    return sum(name in targets for targets in graph.values())


def drawing(house: House) -> str:
    """The rooms as a Mermaid graph. Modules that import no folder are left out: they are imported everywhere."""
    folders = {module.name for module in house.modules.values() if module.is_folder and module.name}
    shown = {room for room in house.rooms if room in folders or reached(house.rooms, room) & folders}
    graph = reduced({room: targets & shown for room, targets in house.rooms.items() if room in shown})
    edges = [f"    {room} --> {target}" for room, targets in sorted(graph.items()) for target in sorted(targets)]
    alone = sorted(set(graph) - {name for edge in edges for name in edge.split() if name != "-->"})
    return "\n".join(["```mermaid", "flowchart TD", *(f"    {room}" for room in alone), *edges, "```"])


def tables(house: House) -> str:
    """The rooms, and the modules of each."""
    folders = [room for room in _order(house) if house.modules[room].is_folder]
    base = [room for room in _order(house) if not house.modules[room].is_folder]
    parts = ["| room | what | modules | lines | imported by | imports |\n|---|---|---:|---:|---:|---|"]
    for room in folders:
        lines = sum(module.lines for module in house.modules.values() if module.room == room)
        rooms = sorted(target for target in house.rooms[room] if target in folders)
        parts[0] += (
            f"\n| [{room}](#{room}) | {_cell(house.modules[room].words)} | {len(house.of(room))} | {_rounded(lines)} | "
            f"{fan_in(house.rooms, room)} | {', '.join(rooms)} |"
        )
    parts += ["### Modules outside the folders", _modules(house, [house.modules[room] for room in base])]
    for room in folders:
        parts += [f"### {room}", _modules(house, house.of(room))]
    return "\n\n".join(parts)


def _order(house: House) -> list[str]:
    """Rooms in topological order, those without imports first; ties by name."""
    sorter = graphlib.TopologicalSorter({room: sorted(targets) for room, targets in house.rooms.items()})
    sorter.prepare()
    found: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found += ready
        sorter.done(*ready)
    return found


def _modules(house: House, modules: list[Module]) -> str:
    lines = ["| module | what | lines | fan-in | fan-out |", "|---|---|---:|---:|---:|"]
    for module in modules:
        numbers = (_rounded(module.lines), fan_in(house.imports, module.name), len(house.imports[module.name]))
        short = module.name.rpartition(".")[2]
        lines.append(f"| `{short}` | {_cell(module.words)} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def _rounded(lines: int) -> str:
    return f"≤ {STEP * math.ceil(lines / STEP):,}"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def page(house: House, text: str) -> str:
    """docs/architecture.md with the graph and the tables regenerated."""
    drawn = between(text, GRAPH_BEGIN, GRAPH_END, drawing(house))
    return between(drawn, ROOMS_BEGIN, ROOMS_END, tables(house))


def main() -> None:
    """Print the numbers, refuse a cycle, write the page."""
    house = read_house()
    if house.cycle:
        raise SystemExit(f"there is an import cycle: {' -> '.join(house.cycle)}")
    lines = sum(module.lines for module in house.modules.values())
    edges = sum(map(len, house.imports.values()))
    print(f"{len(house.modules)} modules, {lines:,} lines, {edges} imports of one by another; no cycle")
    for room in _order(house):
        own = [module for module in house.modules.values() if module.room == room]
        print(
            f"{room:14} {len(own):3} modules {sum(module.lines for module in own):6,} lines, "
            f"rooms: fan-in {fan_in(house.rooms, room)}, fan-out {len(house.rooms[room])}"
        )
    most = sorted(house.modules, key=lambda name: fan_in(house.imports, name))[-5:]
    print("most imported:", ", ".join(f"{name} ({fan_in(house.imports, name)})" for name in reversed(most)))
    PAGE.write_text(page(house, PAGE.read_text()))


if __name__ == "__main__":
    main()
