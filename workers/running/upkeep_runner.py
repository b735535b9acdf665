"""Upkeep in a worker: do it if it is due."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from core.logging import get_logger
from services.jobs import upkeep
from services.jobs.lease import LeaseLost
from services.jobs.upkeep import UpkeepKind
from workers.context import WorkerContext

log = get_logger(__name__)

PeriodicWork = Callable[[WorkerContext, datetime], int | None]


def run_upkeep(context: WorkerContext, *, kind: UpkeepKind, work: PeriodicWork) -> None:
    """A message that comes too early, or a second time, ends at the claim."""
    try:
        upkeep.run_due(context.resources, kind, partial(work, context))
    except LeaseLost:
        log.warning("upkeep.lease_lost", upkeep=kind.name)
    except Exception:  # it is due again soon, and its row has the error
        log.exception("upkeep.failed", upkeep=kind.name)
