"""Asking all parts of a deployment at the same time, and waiting for none of them for long."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
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
    state: CheckState
    check: str
    # Seen by the check.
    found: str
    # For the operator: something fine may be better too.
    advice: str = ""
    # ``examine`` fills in the name of the part that was asked.
    part: str = ""


# Each answer is told as soon as it is there.
Ask = Callable[[Settings], Iterator[Diagnosis]]


fine = partial(Diagnosis, CheckState.FINE)
wrong = partial(Diagnosis, CheckState.WRONG)
skipped = partial(Diagnosis, CheckState.SKIPPED)


def judged(check: str, found: str, is_wrong: bool, advice: str) -> Diagnosis:
    """Return a diagnosis, with the advice if the finding is wrong."""
    return wrong(check, found, advice) if is_wrong else fine(check, found)


def _answers(part: str, ask: Ask, settings: Settings) -> Iterator[Diagnosis]:
    try:
        yield from ask(settings)
    except _UNREACHABLE as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        advice = f"See the settings of this part: {part}."
        yield wrong("answers", reason or type(error).__name__, advice)
    except Exception as error:  # noqa: BLE001 - the other parts are worth telling of
        yield wrong("answers", f"the check itself failed: {type(error).__name__}", "Report this.")


def examine(parts: Mapping[str, Ask], settings: Settings, *, seconds: float) -> list[Diagnosis]:
    """Return what was found of each part, in their order. A part that hangs holds up no other."""
    deadline = time.monotonic() + seconds
    begun: list[tuple[Thread, list[Diagnosis]]] = []
    for name, ask in parts.items():
        answers: list[Diagnosis] = []
        # It puts each answer there as soon as there is one.
        asking = map(answers.append, _answers(name, ask, settings))
        thread = Thread(target=deque, args=(asking, 0), daemon=True, name=name)
        thread.start()
        begun.append((thread, answers))
    diagnoses: list[Diagnosis] = []
    for thread, answers in begun:
        # The thread may hang for longer than this, in a call of C.
        thread.join(max(deadline - time.monotonic(), 0.0))
        results = list(answers)
        if thread.is_alive():
            advice = "Look for what takes the connection and is silent: a firewall, a full disk."
            results.append(wrong("answers", f"no answer within {seconds:g} s", advice))
        diagnoses += [replace(each, part=each.part or thread.name) for each in results]
    return diagnoses
