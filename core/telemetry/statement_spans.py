"""Spans of SQL statements: what is done to which table, and nothing of a statement's text."""

import re
from contextlib import AbstractContextManager
from functools import lru_cache

from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes

_VERB = re.compile(r"\s*([A-Za-z]+)")
_TABLE = re.compile(
    r"\b(?:FROM|INTO|UPDATE|COPY)\s+(?:ONLY\s+)?\"?(?:public\.)?([a-z_][a-z0-9_]*)", re.IGNORECASE
)


def statement_span(text: str) -> AbstractContextManager[None]:
    if not spans.is_recording():
        return spans.NOTHING
    summary = _summary(text)
    about: SpanAttributes = {"db.system.name": "postgresql", "db.query.summary": summary}
    return spans.step_span(summary, "client", about)


@lru_cache(maxsize=4096)
def _summary(text: str) -> str:
    """Such as ``SELECT jobs``, of the table that is named first."""
    verb, table = _VERB.match(text), _TABLE.search(text)
    words = [verb[1].upper()] if verb else []
    return " ".join([*words, *([table[1]] if table else [])]) or "statement"
