"""Collects samples of an imported file, which are cells, rows and problems that the owner sees.

Samples contain personal data, so the samples are encrypted with the key of the import's file. The
samples of a file are removed together with the rejected rows of the import.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import orjson
from sqlalchemy import select
from sqlalchemy.orm import undefer

from core import clock
from models import MemberImport, SubscriptionStatus, Tier
from services.accounts import email_addresses
from services.accounts.email_addresses import InvalidAddress
from services.subscriptions import bulk_files
from services.subscriptions.imports.columns.column_layout import ORIGIN_PREFIX
from services.subscriptions.imports.judged_rows import (
    DUPLICATE_CODE,
    EARLIER_ROW_REASON,
    STRICTER_ROW_REASON,
    JudgedRow,
)
from services.subscriptions.imports.rows import (
    NO_EXTRAS,
    STRICTNESS,
    MemberRow,
    OmittedValue,
    RejectedRecord,
)
from storage.encryption import seal, unseal
from storage.resources import Resources

MAX_ROWS_SHOWN = 5
MAX_EXAMPLES = 3
MAX_EXAMPLE_CHARACTERS = 60
# The maximum number of columns with example cells. If the file has more columns than this, the
# owner sees only the headers of the remaining columns.
MAX_COLUMNS_WITH_EXAMPLES = 500
MAX_LEFT_OUT_SHOWN = 20
MAX_PROBLEMS = 50

_STRICTNESS = {
    SubscriptionStatus.ACTIVE.value: 0,
    **{status.value: strictness for status, strictness in STRICTNESS.items()},
}

AnyRow = MemberRow | RejectedRecord


class ImportSamples(NamedTuple):
    """Samples of an imported file.

    Attributes:
        problems: the problems with rows, grouped by column and rule. The list is complete only
            after the whole file has been read.
        consent: how the values in consent columns were interpreted. The entry ``unknown`` lists the
            unrecognised values. The other entries are maps by column index.
    """

    examples: Sequence[Sequence[str]]
    preview: Sequence[Mapping[str, Any]]
    problems: Sequence[Mapping[str, Any]] = ()
    consent: Mapping[str, Any] = MappingProxyType({})
    readings: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def collect(
        cls,
        header: Sequence[str],
        records: Sequence[Sequence[str]],
        rows: Sequence[AnyRow],
        keys: Mapping[str, str],
    ) -> Self:
        columns = range(min(len(header), MAX_COLUMNS_WITH_EXAMPLES))
        examples = [_collect_examples(records, index) for index in columns]
        return cls(examples, list(_preview_rows(rows, keys)))


class Problems:
    """The problems that an import has found in the rows of a file.

    Problems are grouped by column and violated rule.
    """

    def __init__(self, groups: Iterable[Mapping[str, Any]] = ()) -> None:
        self._groups = {(group["column"], group["rule"]): {**group} for group in groups}

    def add_rows(self, rows: Iterable[JudgedRow]) -> None:
        for row in rows:
            if row.code is not None and row.code != DUPLICATE_CODE:
                cells = ", ".join(filter(None, map(str.strip, row.cells)))
                self.add(None, row.reason or row.code, row.line, cells)
            for value in row.extras.left_out if row.extras else ():
                self.add(value.column, value.rule, row.line, value.cell or "")

    def add(self, column: str | None, rule: str, line: int, cell: str) -> None:
        group = self._groups.get((column, rule))
        if group is None:
            if len(self._groups) >= MAX_PROBLEMS:
                # After ``MAX_PROBLEMS`` groups exist, problems that fit no group are added to the
                # group "Other problems". The number of groups is limited. Otherwise each row could
                # get its own group, because the message of a rule can quote a cell.
                column = None
                rule = "Other problems"
            new: dict[str, Any] = {"column": column, "rule": rule, "rows": 0, "examples": []}
            group = self._groups.setdefault((column, rule), new)
        group["rows"] += 1
        if len(group["examples"]) < MAX_EXAMPLES:
            group["examples"].append({"line": line, "cell": cell[:MAX_EXAMPLE_CHARACTERS]})

    def groups(self) -> list[dict[str, Any]]:
        return sorted(self._groups.values(), key=lambda group: -group["rows"])


def mark_duplicates(
    preview: Iterable[Mapping[str, Any]], strictest: Mapping[str, int]
) -> list[Mapping[str, Any]]:
    """Mark rows that won't be applied, because another row has the same address."""
    marked: list[Mapping[str, Any]] = []
    counted: set[str] = set()
    for row in preview:
        address = row.get("email")
        duplicate = {"line": row["line"], "code": DUPLICATE_CODE}
        if address is None:
            marked.append(row)
        elif _STRICTNESS[row["status"]] < strictest[address]:
            marked.append({**duplicate, "reason": STRICTER_ROW_REASON})
        elif address in counted:
            marked.append({**duplicate, "reason": EARLIER_ROW_REASON})
        else:
            counted.add(address)
            marked.append(row)
    return marked


def store_samples(resources: Resources, task: MemberImport, samples: ImportSamples) -> None:
    key = bulk_files.unwrap_key(resources, task)
    values = tuple(samples._replace(consent=dict(samples.consent)))
    stored = orjson.dumps(values, option=orjson.OPT_NON_STR_KEYS)
    task.samples = seal(stored, key, _build_encryption_name(task))


def add_problems(
    resources: Resources, task: MemberImport, left_out: Mapping[int, OmittedValue]
) -> None:
    """Add values that couldn't be imported to the stored problems of an import.

    The caller must have locked the import's job, so that no concurrent transaction overwrites the
    problems.
    """
    samples = _load_samples(resources, task)
    problems = Problems(samples.problems)
    for line, value in left_out.items():
        problems.add(value.column, value.rule, line, value.cell or "")
    store_samples(resources, task, samples._replace(problems=problems.groups()))


def add_samples(resources: Resources, result: Mapping[str, Any]) -> dict[str, Any]:
    if "import_id" not in result:
        return {**result}
    query = select(MemberImport).where(MemberImport.id == result["import_id"])
    with resources.unit_of_work() as uow:
        task = uow.session.scalar(query.options(undefer(MemberImport.samples)))
    samples = ImportSamples((), ())
    if task is not None and task.files_removed_at is None:
        samples = _load_samples(resources, task)
    columns = [
        {**column, "examples": examples, **_find_consent(samples, index)}
        for index, (column, examples) in enumerate(
            zip(result.get("columns", ()), chain(samples.examples, repeat(())), strict=False)
        )
    ]
    values = {
        "columns": columns,
        "preview": samples.preview,
        "problems": samples.problems,
        "unknown_values": samples.consent.get("unknown"),
        "readings": samples.readings,
    }
    return {**result, **{name: value for name, value in values.items() if value}}


def _find_consent(samples: ImportSamples, index: int) -> dict[str, Any]:
    """Return how the values in a consent column were interpreted, or why the column isn't used."""
    values = {
        name: samples.consent.get(name, {}).get(str(index))
        for name in ("values", "meanings", "ignored_opt_outs", "ignored_reason")
    }
    return {name: value for name, value in values.items() if value is not None}


def _load_samples(resources: Resources, task: MemberImport) -> ImportSamples:
    if task.samples is None:
        return ImportSamples((), ())
    key = bulk_files.unwrap_key(resources, task)
    return ImportSamples(*orjson.loads(unseal(task.samples, key, _build_encryption_name(task))))


def _build_encryption_name(task: MemberImport) -> str:
    return f"{task.object_prefix}/samples"


def _collect_examples(records: Sequence[Sequence[str]], index: int) -> list[str]:
    cells = (
        record[index].strip()[:MAX_EXAMPLE_CHARACTERS] for record in records if index < len(record)
    )
    return [*dict.fromkeys(filter(None, cells))][:MAX_EXAMPLES]


def _preview_rows(rows: Sequence[AnyRow], keys: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    members = [row.email for row in rows if isinstance(row, MemberRow)]
    normalised = iter(email_addresses.normalise_addresses(members))
    for row in rows:
        if isinstance(row, RejectedRecord):
            yield {"line": row.line, "code": row.code, "reason": row.reason}
            continue
        address = next(normalised)
        if isinstance(address, InvalidAddress):
            yield {"line": row.line, "code": "email.invalid", "reason": address.reason}
        elif row.problem is not None:
            yield {"line": row.line, **row.problem._asdict()}
        else:
            extras = row.extras or NO_EXTRAS
            yield {
                "line": row.line,
                "email": address,
                "name": row.name or None,
                "type": row.tier or Tier.FREE.value,
                "paid_expiry": None
                if row.paid_expiry is None
                else clock.format_timestamp(row.paid_expiry),
                "status": row.suppression.value
                if row.is_opt_out
                else SubscriptionStatus.ACTIVE.value,
                "joined_at": extras.joined_at,
                "tags": extras.tags,
                "fields": {keys[id_]: each for id_, each in extras.fields.items() if id_ in keys},
                "consent": {
                    part: value
                    for part, value in extras.claim.items()
                    if not part.startswith(ORIGIN_PREFIX)
                },
                "origin": {
                    part.removeprefix(ORIGIN_PREFIX): value
                    for part, value in extras.claim.items()
                    if part.startswith(ORIGIN_PREFIX)
                },
                "left_out": [str(each) for each in extras.left_out[:MAX_LEFT_OUT_SHOWN]],
            }
