"""Tests that no regular expression of the product takes quadratic time on hostile text."""

import ast
import dataclasses
import importlib
import pkgutil
import re
import signal
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from re import _compiler, _parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import pytest

from tests.support.repository.tracked_files import OURS

Pattern = re.Pattern[Any]
# These modules read the settings when they are imported, so tests can't import them.
_NEED_SETTINGS = frozenset({"api.main", "storage.migrations.env"})
# These methods try to match at each position of a text. The others try only its beginning.
SCANS = frozenset({"search", "finditer", "findall", "sub", "subn", "split"})
_METHODS = SCANS | {"match", "fullmatch"}
# The characters to try for a character class in a pattern. The first ones that belong to the class
# represent the class.
_CANDIDATES = "a0 _A.@<&\"'/-,;:!?#([{~\n\té中あ가×\x01\u2028😀1"
_MAX_PAIRED_CHARACTERS = 6


pytestmark = pytest.mark.tier("check")

# If the time of a search grows in proportion to the text's length, a text of 12,000 characters
# takes 4 times as long as a text of 3,000 characters. If the time grows with the square of the
# length, the longer text takes 16 times as long.
MAX_RATIO = 10
# Durations below this limit are not compared, because they can't be measured exactly.
MIN_SECONDS = 0.002
ROUNDS = 5
# A call that exceeds this time is aborted, and counts as slow.
MAX_SECONDS = 0.3


@dataclasses.dataclass
class Use:
    """Where the product holds a pattern, such as ``core.ids._ID``, and the methods that it calls.

    ``methods`` is empty if the calls are unknown.
    """

    place: str
    methods: set[str] = dataclasses.field(default_factory=set)


def product_patterns() -> dict[Pattern, Use]:
    """Find the patterns in all modules, in their classes and containers, and inside functions."""
    uses: dict[Pattern, Use] = {}
    calls: dict[Pattern, set[str]] = defaultdict(set)
    for module in _modules():
        source = ast.parse(Path(str(module.__file__)).read_text())
        for name, value in [*vars(module).items()]:
            for pattern in _patterns_in(value, module.__name__, set()):
                uses.setdefault(pattern, Use(f"{module.__name__}.{name}"))
        for pattern, method, line in _patterns_of_calls(source):
            uses.setdefault(pattern, Use(f"{module.__name__}, line {line}"))
            calls[pattern].add(method)
        for pattern, methods in _called_methods(module, source).items():
            calls[pattern] |= methods
    for pattern, methods in calls.items():
        if pattern in uses:
            uses[pattern].methods = methods
    return uses


def _modules() -> Iterator[ModuleType]:
    for package in OURS:
        root = importlib.import_module(package)
        yield root
        for entry in pkgutil.walk_packages(root.__path__, f"{package}."):
            if entry.name not in _NEED_SETTINGS and not entry.name.endswith(".__main__"):
                yield importlib.import_module(entry.name)


def _patterns_in(value: object, module: str, seen: set[int]) -> Iterator[Pattern]:
    """Yield the patterns in a value, in its parts and in the attributes of its own classes."""
    if id(value) in seen:
        return
    seen.add(id(value))
    parts: Iterable[object] = ()
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = [*value]
    elif isinstance(value, type):
        parts = [*vars(value).values()] if value.__module__ == module else []
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, each.name, None) for each in dataclasses.fields(value)]
    for part in parts:
        yield from _patterns_in(part, module, seen)


def _patterns_of_calls(source: ast.Module) -> Iterator[tuple[Pattern, str, int]]:
    """Yield each literal pattern of a call such as ``re.fullmatch("[a-z]+", text)``."""
    for node in ast.walk(source):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name("re"), attr=method), args=[ast.Constant(text), *_]
            ) if method in _METHODS:
                yield re.compile(text), method, node.lineno


def _called_methods(module: ModuleType, source: ast.Module) -> dict[Pattern, set[str]]:
    """Return the methods that a module calls, by pattern.

    A pattern that goes through a variable, for instance out of a tuple, may get every call of a
    variable in the same module.
    """
    methods: dict[Pattern, set[str]] = defaultdict(set)
    indirect: set[str] = set()
    callees = set()
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute) and node.attr in _METHODS:
            value = _resolved(module, node.value)
            callees.add(node.value)
            if isinstance(value, re.Pattern):
                methods[value].add(node.attr)
            elif value is not re and node.attr != "split":
                indirect.add(node.attr)
    for node in ast.walk(source):
        if isinstance(node, ast.Name | ast.Attribute) and node not in callees:
            for pattern in _patterns_in(_resolved(module, node), "", set()):
                methods[pattern] |= indirect
    return methods


def _resolved(module: ModuleType, node: ast.expr) -> object:
    """Return the global value that an expression such as ``lists.SLUG`` names, or ``None``."""
    if isinstance(node, ast.Name):
        return vars(module).get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return getattr(vars(module).get(node.value.id), node.attr, None)
    return None


class _Units:
    """Collects what a pattern names: characters, and the shortest texts up to each repetition."""

    def __init__(self, pattern: Pattern) -> None:
        self._flags = pattern.flags & ~re.DEBUG
        self._is_bytes = isinstance(pattern.pattern, bytes)
        tree = _parser.parse(pattern.pattern, self._flags)
        self._state = tree.state
        self.units: dict[str, None] = {}
        self._add(self._shortest(tree))

    def _add(self, text: str) -> None:
        if text:
            self.units[text] = None

    def _shortest(self, sequence: Iterable[Any]) -> str:
        """Return the shortest text that fits, and collect the units inside of it."""
        text = ""
        for node in sequence:
            text += self._shortest_of(node, text)
        return text

    def _shortest_of(self, node: Any, before: str) -> str:
        """Return the shortest text that fits one part of a sequence, after the text before it."""
        text = ""
        match str(node[0]), node[1]:
            case "LITERAL", code:
                text = chr(code)
                self._add(text)
            case "IN" | "NOT_LITERAL" | "ANY", _:
                text, *_ = examples = self._examples(node) or [""]
                for each in examples:
                    self._add(each)
            case "BRANCH", (_, branches):
                text, *_ = texts = [self._shortest(branch) for branch in branches]
                for each in texts:
                    self._add(before + each)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT", (least, _, repeated):
                once = self._shortest(repeated)
                self._add(before)
                self._add(before + once * max(least, 1))
                text = once * least
            case "SUBPATTERN", (*_, inner):
                text = self._shortest(inner)
            case "ATOMIC_GROUP", inner:
                text = self._shortest(inner)
            case "ASSERT" | "ASSERT_NOT", (_, inner):
                self._shortest(inner)
        return text

    def _examples(self, node: Any) -> list[str]:
        """Return two characters of a class."""
        members = node[1] if str(node[0]) == "IN" else []
        own = [chr(each) for kind, each in members if str(kind) == "LITERAL"]
        own += [chr(each[0]) for kind, each in members if str(kind) == "RANGE"]
        compiled = _compiler.compile(_parser.SubPattern(self._state, [node]), self._flags)
        candidates = [each for each in dict.fromkeys([*own, *_CANDIDATES]) if self._is_text(each)]
        return [each for each in candidates if compiled.fullmatch(self.written(each))][:2]

    def _is_text(self, character: str) -> bool:
        return not self._is_bytes or ord(character) < 256

    def written(self, text: str) -> Any:
        return text.encode("latin-1") if self._is_bytes else text


def repeated_texts(pattern: Pattern) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """Yield what is repeated, and a function that writes a text of the given length.

    A character that the pattern does not name stands at the end, or at both ends, of some texts.
    """
    collected = _Units(pattern)
    units = [*collected.units]
    characters = [each for each in units if len(each) == 1][:_MAX_PAIRED_CHARACTERS]
    pairs = [one + other for one in characters for other in characters if one != other]
    foreign = next(each for each in "~\x01\x02\x03" if each not in collected.units)
    for unit in dict.fromkeys([*units, *pairs]):
        for before, after in (("", ""), ("", foreign), (foreign, foreign)):

            def write(size: int, unit: str = unit, before: str = before, after: str = after) -> Any:
                return collected.written(before + unit * (size // len(unit)) + after)

            yield f"{before}{unit}…{after}", write


def test_no_regular_expression_of_the_product_is_slow_on_repeated_characters() -> None:
    slow = {}
    for pattern, use in product_patterns().items():
        methods = use.methods or {"search", "match", "fullmatch"}
        if text := next(slow_texts(pattern, methods), None):
            slow[use.place] = text
    assert not slow


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        # Slow searches for an address without an at sign, for an unfinished IP address, and for a
        # tag without a name.
        ("[^/]*@[^/]*", "sub"),
        (r"//|@|\d+(?:\.\d+){3}", "search"),
        (r"<[</!?]*(?=[\w!?])|&+(?=#?\w+;)|!+(?=\[)", "sub"),
        # Regular expressions in which the slow part follows a literal, stands before the end of the
        # text, or is repeated.
        ("<!--.*?-->", "search"),
        (r"\s+\Z", "sub"),
        (r"(?:[a-z]+,?)*\Z", "match"),
        (r"\s*x?\s*", "fullmatch"),
    ],
)
def test_slow_pattern_search_reports_slow_patterns(pattern: str, method: str) -> None:
    assert next(slow_texts(re.compile(pattern), {method}), None)


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        ("[a-z]{1,20}@", "search"),
        ("[a-z]+@", "match"),
        (r"(?<!\d)\d+(?:\.\d+){3}", "finditer"),
    ],
)
def test_slow_pattern_search_accepts_fast_patterns(pattern: str, method: str) -> None:
    assert not [*slow_texts(re.compile(pattern), {method})]


def slow_texts(pattern: Pattern, methods: Iterable[str]) -> Iterator[str]:
    """Yield texts for which a method's duration grows with the square of the text's length."""
    # `finditer` is at least as slow as the other methods that search the whole text.
    for name in sorted({"finditer" if method in SCANS else method for method in methods}):
        for label, write in repeated_texts(pattern):

            def measure(size: int, rounds: int, name: str = name, write: Any = write) -> float:
                return _best_seconds(partial(_call, pattern, name, write(size)), rounds)

            # After a few calls, skip the text if the search is fast, or if a longer text takes
            # little more time.
            first_seconds = measure(3_000, 1)
            if first_seconds * 16 < MIN_SECONDS or first_seconds < 5 * measure(750, 3):
                continue
            long_seconds = measure(12_000, ROUNDS)
            if long_seconds > MIN_SECONDS and long_seconds >= MAX_RATIO * measure(3_000, ROUNDS):
                yield f"{name} of {label!r}"


def _call(pattern: Pattern, method: str, text: Any) -> None:
    result = getattr(pattern, method)(text)
    if method == "finditer":
        deque(result, maxlen=0)


def _best_seconds(call: Callable[[], None], rounds: int) -> float:
    """Call ``call`` at most ``rounds`` times, and return the shortest processor time.

    Other programs can slow down a call.
    """
    best_seconds = float("inf")
    total_seconds = 0.0
    for _ in range(rounds):
        if total_seconds > MAX_SECONDS:
            break
        began_at = time.thread_time()
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        try:
            call()
        except _TooSlow:
            break
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        seconds = time.thread_time() - began_at
        best_seconds = min(best_seconds, seconds)
        total_seconds += seconds
    return best_seconds


class _TooSlow(Exception):
    """A call exceeded the maximum time and was aborted."""


@pytest.fixture(autouse=True)
def _end_slow_calls() -> Iterator[None]:
    def raise_too_slow(*_: object) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGPROF, raise_too_slow)
    yield
    signal.signal(signal.SIGPROF, before)
