"""Asking all parts of a deployment at the same time, and waiting for none of them for long."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from threading import Thread

import psycopg2
import redis.exceptions
from sqlalchemy.exc import SQLAlchemyError

from core.errors import DomainError, SettingsError, TransientError
from core.settings import Settings

# All parts together, so that the command ends within half a minute.
MAX_EXAMINATION_SECONDS = 22.0
_UNREACHABLE = (
    DomainError,
    TransientError,
    SettingsError,
    psycopg2.Error,
    SQLAlchemyError,
    redis.exceptions.RedisError,
    OSError,
)


class CheckState(StrEnum):
    FINE = "fine"
    WRONG = "wrong"
    # Not asked: it is not set up, or this process was not handed what it takes.
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Diagnosis:
    """
    Attributes:
        part: what was asked; ``examine`` fills in the name of the asked part where it is empty.
        found: what was seen.
        advice: what the operator can do; something fine may be better too.
    """

    part: str
    check: str
    state: CheckState
    found: str
    advice: str = ""


# Each answer is told as soon as it is there.
Ask = Callable[[Settings], Iterator[Diagnosis]]


def fine(check: str, found: str, advice: str = "") -> Diagnosis:
    return Diagnosis("", check, CheckState.FINE, found, advice)


def wrong(check: str, found: str, advice: str) -> Diagnosis:
    return Diagnosis("", check, CheckState.WRONG, found, advice)


def skipped(check: str, found: str, advice: str = "") -> Diagnosis:
    return Diagnosis("", check, CheckState.SKIPPED, found, advice)


def judged(check: str, found: str, *, is_wrong: bool, advice: str) -> Diagnosis:
    """The same finding is wrong or fine; the advice is for the first alone."""
    return wrong(check, found, advice) if is_wrong else fine(check, found)


@dataclass
class _Asked:
    part: str
    answers: list[Diagnosis] = field(default_factory=list)
    has_ended: bool = False

    def run(self, ask: Ask, settings: Settings) -> None:
        try:
            for answer in ask(settings):
                self.answers.append(replace(answer, part=answer.part or self.part))
        except _UNREACHABLE as error:
            said = " ".join(str(getattr(error, "orig", None) or error).split())
            self.tell(said or type(error).__name__, f"See the settings of this part: {self.part}.")
        except Exception as error:  # noqa: BLE001 - the other parts are worth telling of
            self.tell(f"the check itself failed: {type(error).__name__}", "Report this.")
        self.has_ended = True

    def tell(self, found: str, advice: str) -> None:
        self.answers.append(Diagnosis(self.part, "answers", CheckState.WRONG, found, advice))


def examine(parts: Mapping[str, Ask], settings: Settings, *, seconds: float) -> list[Diagnosis]:
    """Return what was found of each part, in their order. A part that hangs holds up no other."""
    deadline = time.monotonic() + seconds
    begun: list[tuple[_Asked, Thread]] = []
    for name, ask in parts.items():
        asked = _Asked(name)
        thread = Thread(target=asked.run, args=(ask, settings), daemon=True, name=name)
        thread.start()
        begun.append((asked, thread))
    found: list[Diagnosis] = []
    for asked, thread in begun:
        # The thread may hang for longer than this, in a call of C.
        thread.join(max(deadline - time.monotonic(), 0.0))
        told = _Asked(asked.part, list(asked.answers))
        if not asked.has_ended:
            advice = "Look for what takes the connection and is silent: a firewall, a full disk."
            told.tell(f"no answer within {seconds:g} s", advice)
        found += told.answers
    return found
