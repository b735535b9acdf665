"""The product's names: of modules, of classes and of bounds, and words that hide who acts."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

from tests.house.exceptions import FOLDERS_BY_RESOURCE, ROLES, SAME_THING
from tests.house.source import Module

# A bound is MAX_… or MIN_…; these are the other ways to say it.
_OTHER_BOUND = re.compile(
    r"^_?(MOST|LEAST|LONGEST|SHORTEST|LARGEST|SMALLEST|GREATEST|FEWEST|HIGHEST|LOWEST|DEEPEST)(_|$)"
    r"|_(MOST|LEAST)$"
)
_HIDDEN_ACTOR = re.compile(r"\b(?:whoever|nobody|somebody)\b", re.IGNORECASE)

Places = dict[str, list[str]]


def modules_per_folder(modules: list[Module]) -> Counter[str]:
    """How many modules each folder has of its own; files that Python names don't count."""
    return Counter(
        module.path.parent.as_posix() for module in modules if not module.path.stem.startswith("__")
    )


def repeated_module_names(modules: list[Module]) -> Places:
    """Each name of a module or folder that is used more than once, with where it is used."""
    places = defaultdict(set)
    for module in modules:
        for path in (module.path, *module.path.parents):
            if path.name and not path.stem.startswith("__"):
                places[path.stem].add(path.as_posix())
    return _repeated(places)


def ambiguous_module_names(modules: list[Module]) -> Places:
    """The repeated names that no rule and no exception makes a name of one thing."""
    return {
        name: places
        for name, places in repeated_module_names(modules).items()
        if name not in ROLES | SAME_THING and len(_beside_resources(places)) > 1
    }


def repeated_class_names(modules: list[Module]) -> Places:
    """Each name of a public class that is used more than once, with the modules that use it."""
    places = defaultdict(set)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(module.path.as_posix())
    return _repeated(places)


def bounds_of_other_names(modules: list[Module]) -> list[str]:
    return [
        f"{module.path}:{node.lineno} {node.id}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and _OTHER_BOUND.search(node.id)
    ]


def hidden_actors(modules: list[Module]) -> int:
    return sum(len(_HIDDEN_ACTOR.findall(module.text)) for module in modules)


def _beside_resources(places: list[str]) -> list[str]:
    return [each for each in places if Path(each).parent.as_posix() not in FOLDERS_BY_RESOURCE]


def _repeated(places: dict[str, set[str]]) -> Places:
    return {name: sorted(places[name]) for name in sorted(places) if len(places[name]) > 1}
