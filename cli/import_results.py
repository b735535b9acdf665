"""Formats the lists in an import's result as lines of text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from services.subscriptions.imports.columns.column_layout import FIELD_PREFIX, IGNORED

Entry = Mapping[str, Any]


def format_lists(result: Entry) -> dict[str, list[str]]:
    lists = {
        "ignored_columns": [*result.get("ignored_columns", ())],
        "sheets": [each["name"] for each in result.get("sheets", ())],
        "columns": [_format_column(each) for each in result.get("columns", ())],
        "preview": [_format_row(each) for each in result.get("preview", ())],
        "problems": [_format_problem(each) for each in result.get("problems", ())],
        "unknown_values": [_format_value(each) for each in result.get("unknown_values", ())],
    }
    return {name: lines for name, lines in lists.items() if lines}


def _format_column(column: Entry) -> str:
    details = []
    if column["becomes"] == IGNORED:
        details += ["left out"] if column.get("has_data") else []
    elif column.get("creates"):
        details.append(f"new field, {column['creates']}")
    if column.get("written"):
        details.append(f"written as {column['written']}")
    if column.get("ignored_reason"):
        details.append(column["ignored_reason"].removesuffix("."))
    if column.get("ignored_opt_outs"):
        details.append(f"ignores {column['ignored_opt_outs']:,} opt-outs")
    details += [
        f"{each['value'] or 'empty'} = {each['read_as']}" for each in column.get("values", ())
    ]
    ending = f" ({', '.join(details)})" if details else ""
    return f"{column['name'] or 'Without a name'}: {column['becomes']}{ending}"


def _format_row(row: Entry) -> str:
    place = f"line {row['line']}: "
    if "code" in row:
        return f"{place}{row['code']}, {row['reason']}"
    return place + ", ".join(_list_values(row))


def _list_values(row: Entry) -> Iterator[str]:
    yield row["email"]
    if row["name"]:
        yield row["name"]
    yield row["type"] if row["paid_expiry"] is None else f"{row['type']} until {row['paid_expiry']}"
    yield row["status"]
    if row["joined_at"]:
        yield f"joined {row['joined_at'][:10]}"
    if row["tags"]:
        yield f"tags {' + '.join(row['tags'])}"
    for key, value in row["fields"].items():
        yield f"{FIELD_PREFIX}{key} {_format_cell(value)}"
    for part, value in row["consent"].items():
        yield f"consent.{part} {value}"
    yield from row["left_out"]


def _format_cell(value: str | bool | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _format_problem(problem: Entry) -> str:
    examples: Sequence[Entry] = problem["examples"]
    cells = "; ".join(f"line {each['line']}: {each['cell']}" for each in examples)
    return f"{problem['column'] or 'whole row'}: {problem['rule']} ({problem['rows']:,} ×) {cells}"


def _format_value(value: Entry) -> str:
    return f"{value['column']}: {value['value']} ({value['rows']:,} ×)"
