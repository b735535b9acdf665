"""Spans of SQL statements: what is done to which table, and nothing of a statement's text."""

import re
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext

from core.telemetry import spans

_VERB = re.compile(r"\s*([A-Za-z]+)")
_TABLE = re.compile(
    r"\b(?:FROM|INTO|UPDATE|COPY)\s+(?:ONLY\s+)?\"?(?:public\.)?([a-z_][a-z0-9_]*)", re.IGNORECASE
)
_KEPT = "pressroom_span"


def statement_span(text: str) -> AbstractContextManager[None]:
    if not spans.is_recording():
        return spans.NOTHING
    summary = _summary(text)
    about: spans.Attributes = {"db.system.name": "postgresql", "db.query.summary": summary}
    return spans.span(summary, "client", about)


def watch(engine: Engine) -> None:
    """Make a span of each statement that this engine executes, where there is a collector."""
    if not spans.is_on():
        return

    @event.listens_for(engine, "before_cursor_execute")
    def begin(
        _connection: Any, _cursor: Any, text: str, _values: Any, context: Any, _: Any
    ) -> None:
        begun = ExitStack()
        begun.enter_context(statement_span(text))
        setattr(context, _KEPT, begun)

    @event.listens_for(engine, "after_cursor_execute")
    def end(_connection: Any, _cursor: Any, _text: str, _values: Any, context: Any, _: Any) -> None:
        begun: ExitStack | None = getattr(context, _KEPT, None)
        if begun is not None:
            begun.close()

    @event.listens_for(engine, "handle_error")
    def fail(failed: ExceptionContext) -> None:
        begun: ExitStack | None = getattr(failed.execution_context, _KEPT, None)
        if begun is not None:
            error = failed.original_exception
            begun.__exit__(type(error), error, None)


@lru_cache(maxsize=4096)
def _summary(text: str) -> str:
    """Such as ``SELECT jobs``, of the table that is named first."""
    verb, table = _VERB.match(text), _TABLE.search(text)
    words = [verb[1].upper()] if verb else []
    return " ".join([*words, *([table[1]] if table else [])]) or "statement"
