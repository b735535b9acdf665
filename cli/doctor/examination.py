"""Asking all parts at the same time, and waiting for none of them for long."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Thread

import psycopg2
import redis.exceptions
from sqlalchemy.exc import SQLAlchemyError

from cli.doctor.diagnoses import CheckState, Diagnosis, Part
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


@dataclass
class _Asked:
    part: Part
    answers: list[Diagnosis] = field(default_factory=list)
    has_ended: bool = False

    def ask(self, settings: Settings) -> None:
        try:
            for answer in self.part.ask(settings):
                found = (answer.check, answer.state, answer.found, answer.advice)
                self.answers.append(Diagnosis(self.part.name, *found))
        except _UNREACHABLE as error:
            self._tell(_sentence(error), f"See the settings of this part: {self.part.name}.")
        except Exception as error:  # noqa: BLE001 - the other parts are worth telling of
            self._tell(f"the check itself failed: {type(error).__name__}", "Report this.")
        self.has_ended = True

    def _tell(self, found: str, advice: str) -> None:
        wrong = Diagnosis(self.part.name, "answers", CheckState.WRONG, found, advice)
        self.answers.append(wrong)

    def until(self, thread: Thread, deadline: float, seconds: float) -> list[Diagnosis]:
        """What was found until the deadline. The thread may hang for longer, in a call of C."""
        thread.join(max(deadline - time.monotonic(), 0.0))
        found = list(self.answers)
        if not self.has_ended:
            late = f"no answer within {seconds:g} s"
            advice = "Look for what takes the connection and is silent: a firewall, a full disk."
            found.append(Diagnosis(self.part.name, "answers", CheckState.WRONG, late, advice))
        return found


def examine(
    parts: Sequence[Part], settings: Settings, *, seconds: float = MAX_EXAMINATION_SECONDS
) -> list[Diagnosis]:
    """What was found of each part, in their order. A part that hangs holds up no other one."""
    deadline = time.monotonic() + seconds
    begun = []
    for part in parts:
        asked = _Asked(part)
        thread = Thread(target=asked.ask, args=(settings,), daemon=True, name=part.name)
        thread.start()
        begun.append((asked, thread))
    return [
        diagnosis for asked, thread in begun for diagnosis in asked.until(thread, deadline, seconds)
    ]


def _sentence(error: Exception) -> str:
    """What the error says, on one line."""
    reason = getattr(error, "orig", None) or error
    said = " ".join(str(reason).split())
    return said or type(error).__name__
