"""Computes the pauses between attempts in SQL."""

from typing import Any

from sqlalchemy import ColumnElement, func
from sqlalchemy.dialects.postgresql import array

from core.pauses import Pauses


def build_pause(pauses: Pauses, failures: ColumnElement[int]) -> ColumnElement[Any]:
    steps = array(pauses.steps)
    pause = steps[func.least(failures, len(pauses.steps))]
    return (1 + func.random() * pauses.jitter) * pause if pauses.jitter else pause
