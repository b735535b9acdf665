"""Runs the checks for all parts of a deployment at the same time, with a common time limit."""

import threading
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

from core.errors import DomainError, ServerFailed, SettingsError, TransientError
from core.settings import Settings
from storage.full_disks import FULL_DISKS, Store

# The time limit in seconds for all checks together, so that the command ends within half a minute.
MAX_SECONDS = 22.0
_THREAD_NAME = "check of "
_EXPECTED_ERRORS = (
    DomainError,
    TransientError,
    SettingsError,
    psycopg2.Error,
    SQLAlchemyError,
    redis.exceptions.RedisError,
    OSError,
)
FREE_SPACE = "Free space on the server's disk, or enlarge the disk. See docs/runbook.md."
# The stores that the checks of each part write to.
_STORES = {
    "database": Store.DATABASE,
    "redis": Store.REDIS,
    "broker": Store.REDIS,
    "object storage": Store.OBJECTS,
}


class CheckState(StrEnum):
    FINE = "fine"
    WRONG = "wrong"
    # The check found nothing wrong, but something important remains unchecked. The command's exit
    # code stays 0.
    WARNING = "warning"
    # The check was skipped, because the checked part of the deployment isn't configured or this
    # process lacks the settings for it.
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Diagnosis:
    """The result of a check of one part of a deployment.

    Attributes:
        advice: what the operator should do, even after a successful check, or an empty text.
        part: the name of the checked part of the deployment. ``run_checks`` fills in an empty name.
    """

    state: CheckState
    check: str
    found: str
    advice: str = ""
    part: str = ""


# A function that checks a part of the deployment, and yields each result immediately. If the check
# hangs, the results that it has already yielded aren't lost.
Check = Callable[[Settings], Iterator[Diagnosis]]


fine = partial(Diagnosis, CheckState.FINE)
wrong = partial(Diagnosis, CheckState.WRONG)
warning = partial(Diagnosis, CheckState.WARNING)
skipped = partial(Diagnosis, CheckState.SKIPPED)


def diagnose(check: str, finding: str, is_wrong: bool, advice: str) -> Diagnosis:
    return wrong(check, finding, advice) if is_wrong else fine(check, finding)


def run_checks(
    parts: Mapping[str, Check], settings: Settings, *, seconds: float
) -> list[Diagnosis]:
    """Run the checks for all parts of a deployment. Return the results in the order of the parts.

    Each part is checked in its own thread, so that a check that hangs doesn't delay other checks.
    """
    deadline = time.monotonic() + seconds
    runs: list[tuple[str, Thread, list[Diagnosis]]] = []
    for name, check in parts.items():
        results: list[Diagnosis] = []
        # Don't start a second check while a check of an earlier run still hangs. Otherwise, the
        # number of hanging threads would grow in a worker, which repeats the checks.
        hanging = [each for each in threading.enumerate() if each.name == _THREAD_NAME + name]
        if hanging:
            runs.append((name, hanging[0], results))
            continue
        # ``thread`` consumes this iterator, which runs the check and appends each diagnosis to
        # ``results``.
        appends = map(results.append, _run_check(name, check, settings))
        thread = Thread(target=deque, args=(appends, 0), daemon=True, name=_THREAD_NAME + name)
        thread.start()
        runs.append((name, thread, results))
    diagnoses: list[Diagnosis] = []
    for name, thread, results in runs:
        # Wait with a time limit, because a thread that hangs in a C function can't be stopped.
        thread.join(max(deadline - time.monotonic(), 0.0))
        part_results = list(results)
        if thread.is_alive():
            advice = "Check for a cause of hanging connections, such as a firewall or a full disk."
            part_results.append(wrong("answers", f"no response within {seconds:g} s", advice))
        diagnoses += [replace(each, part=each.part or name) for each in part_results]
    return diagnoses


def _run_check(part: str, check: Check, settings: Settings) -> Iterator[Diagnosis]:
    try:
        yield from check(settings)
    except _EXPECTED_ERRORS as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        reason = reason or type(error).__name__
        if _STORES.get(part) in FULL_DISKS.list_stores():
            yield wrong("disk", f"the disk is full: {reason}", FREE_SPACE)
            return
        advice = f"Check the settings for: {part}."
        if isinstance(error, ServerFailed) or "refused" in reason:
            advice = f"Check the settings for: {part}, or the server is down: read its log."
        yield wrong("answers", reason, advice)
    except Exception as error:  # noqa: BLE001 - the checks of other parts must be reported
        yield wrong("answers", f"the check itself failed: {type(error).__name__}", "Report this.")
