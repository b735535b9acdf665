"""Records spans of SQL statements. A span contains only the statement's verb and table."""

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
        return spans.NO_SPAN
    summary = _summary(text)
    attributes: SpanAttributes = {"db.system.name": "postgresql", "db.query.summary": summary}
    return spans.step_span(summary, "client", attributes)


@lru_cache(maxsize=4096)
def _summary(text: str) -> str:
    """Return the verb and the first table of an SQL statement, such as ``SELECT jobs``."""
    verb = _VERB.match(text)
    table = _TABLE.search(text)
    words = [verb[1].upper()] if verb else []
    return " ".join([*words, *([table[1]] if table else [])]) or "statement"
