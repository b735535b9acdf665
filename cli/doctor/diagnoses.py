"""What is asked of each part that a deployment needs, and what came of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from core.settings import Settings


class CheckState(StrEnum):
    FINE = "fine"
    WRONG = "wrong"
    # Not asked: it is not set up, or this process was not handed what it takes.
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Diagnosis:
    """
    Attributes:
        found: what was seen.
        advice: what the operator can do; something fine may be better too.
    """

    part: str
    check: str
    state: CheckState
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Part:
    """A part of the deployment, and what asks it: each answer is told as soon as it is there."""

    name: str
    ask: Callable[[Settings], Iterator["CheckAnswer"]]


@dataclass(frozen=True)
class CheckAnswer:
    """A diagnosis that doesn't name its part yet."""

    check: str
    state: CheckState
    found: str
    advice: str = ""


def fine(check: str, found: str, advice: str = "") -> CheckAnswer:
    return CheckAnswer(check, CheckState.FINE, found, advice)


def wrong(check: str, found: str, advice: str) -> CheckAnswer:
    return CheckAnswer(check, CheckState.WRONG, found, advice)


def skipped(check: str, found: str, advice: str = "") -> CheckAnswer:
    return CheckAnswer(check, CheckState.SKIPPED, found, advice)
