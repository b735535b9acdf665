"""Computes the pauses between attempts in SQL."""

from typing import Any

from sqlalchemy import ColumnElement, func
from sqlalchemy.dialects.postgresql import array

from core.pauses import Pauses


def build_pause(pauses: Pauses, failures: ColumnElement[int]) -> ColumnElement[Any]:
    """Build the SQL expression for the pause after ``failures`` failures, which is at least 1."""
    steps = array(pauses.steps)
    pause = steps[func.least(failures, len(pauses.steps))]
    return (1 + func.random() * pauses.jitter) * pause if pauses.jitter else pause
