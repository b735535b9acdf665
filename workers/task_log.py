"""Keeps routine lines about periodic tasks out of a worker's log.

Celery logs two lines per task. Maintenance and canaries run thousands of times per hour, even if
nobody uses Pressroom. Their lines would hide the lines about users' jobs.
"""

import logging
from typing import Any

from celery.app.trace import LOG_RECEIVED, LOG_SUCCESS

from services.jobs import maintenance
from workers.canary_task import CANARY

# The successful run of a periodic task is logged if the run takes at least this time.
SLOW_TASK_SECONDS = 2.0

_TASK_LOGGERS = ("celery.worker.strategy", "celery.app.trace")


def hide_routine_lines() -> None:
    """Drop the lines of fast periodic tasks, unless the log level is ``debug``.

    Call this function after the log is configured, in the process that starts the pool. Pool
    processes inherit the filter.
    """
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        for name in _TASK_LOGGERS:
            logging.getLogger(name).addFilter(_is_worth_logging)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    if record.msg not in {LOG_RECEIVED, LOG_SUCCESS}:
        # Keep errors, retries, and all lines that aren't about a single task.
        return True
    task: dict[str, Any] = record.args if isinstance(record.args, dict) else {}
    if not _is_periodic(task.get("name")):
        return True
    return record.msg == LOG_SUCCESS and float(task.get("runtime", 0)) >= SLOW_TASK_SECONDS


def _is_periodic(name: object) -> bool:
    return name == CANARY or any(kind.name == name for kind in maintenance.list_kinds())
