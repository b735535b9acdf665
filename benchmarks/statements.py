"""Records the SQL statements of a call, so that a benchmark can repeat them as a baseline."""

from collections.abc import Callable
from typing import Any

from psycopg2.extensions import cursor
from sqlalchemy import Engine, event


def record_statements(
    engine: Engine, sql: cursor, call: Callable[[], object], *words: str
) -> list[str]:
    """Return the statements of a call that begin with one of the words, with their values.

    Statements without these words, such as savepoints and time limits, are left out.
    """
    statements: list[str] = []

    def record(_: Any, __: Any, text: str, values: Any, *___: Any) -> None:
        if text.lstrip().startswith(words):
            statements.append(sql.mogrify(text, values).decode())

    event.listen(engine, "before_cursor_execute", record)
    try:
        call()
    finally:
        event.remove(engine, "before_cursor_execute", record)
    return statements
