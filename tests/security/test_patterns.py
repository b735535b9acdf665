"""Tests that no regular expression of the product takes quadratic time on hostile text."""

import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.security.patterns import SCANS, Pattern, product_patterns, repeated_texts

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
