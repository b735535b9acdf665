"""Formats large arrays as text for SQL parameters.

psycopg2 writes a list as ``ARRAY[…]``, and Postgres parses each item as an expression. Postgres
reads a single text with thousands of items about four times as fast. A SQL statement must convert
its text parameter to an array, for example with ``CAST(:ids AS bigint[])``.
"""

from collections.abc import Iterable
from datetime import datetime

# Optimization: large arrays as text (decision 17).


def format_numbers(numbers: Iterable[int | None]) -> str:
    items = ["NULL" if number is None else str(number) for number in numbers]
    return f"{{{','.join(items)}}}"


def format_times(times: Iterable[datetime]) -> str:
    """Return an array of times as text. Each item of ``times`` must have a time zone."""
    times = [*times]
    # Format equal times only once, because the items of a batch often have the same time.
    texts = {time: time.isoformat() for time in {*times}}
    items = [texts[time] for time in times]
    return f"{{{','.join(items)}}}"


def format_texts(texts: Iterable[str | None]) -> str:
    items = [
        "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for text in texts
    ]
    return f"{{{','.join(items)}}}"
