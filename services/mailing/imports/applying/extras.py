"""Fields, tags and the day of joining that rows of a chunk have.

They are copied into a table of their own, and the statements that read it run for chunks that have
some: other chunks cost what they would without fields and tags.
"""

from collections.abc import Iterator, Mapping, Sequence

import orjson
from sqlalchemy import text

from core.errors import DomainError
from models import MemberImport
from services.mailing.attributes import tags
from services.mailing.attributes.tags import MAX_TAGS_OF_MEMBER
from services.mailing.imports.applying import staging
from services.mailing.imports.applying.staging import JUDGED, STAGED_EXTRAS
from services.mailing.imports.chunks import JudgedRow
from services.mailing.imports.mapping.rows import RowExtras
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

TagIds = Mapping[str, int]


def of_rows(rows: Sequence[JudgedRow]) -> Iterator[tuple[int, RowExtras]]:
    """The extras of rows that may be applied, by the rows' numbers."""
    for number, row in enumerate(rows):
        if row.extras is not None and row.code is None and row.left is None:
            yield number, row.extras


def make_tags(resources: Resources, task: MemberImport, rows: Sequence[JudgedRow]) -> TagIds:
    """The ids of the rows' tags; those that the list has no room for are left out.

    In a transaction of its own: others who make one of them wait for it.
    """
    # A new tag is spelt as the first row does.
    names = dict.fromkeys(name for _, extras in of_rows(rows) for name in extras.tags)
    if not names:
        return {}
    try:
        with resources.unit_of_work() as uow:
            return tags.tag_ids_of(uow, task.list_id, names, make=not task.dry_run)
    except DomainError:
        with resources.unit_of_work() as uow:
            return tags.tag_ids_of(uow, task.list_id, names, make=False)


def copy_extras(uow: UnitOfWork, rows: Sequence[JudgedRow], tag_ids: TagIds) -> None:
    lines = []
    for number, extras in of_rows(rows):
        if extras.fields or extras.tags or extras.joined_at:
            fields = staging.escaped(orjson.dumps(extras.fields).decode())
            ids = ",".join(map(str, sorted({*_ids(extras, tag_ids)})))
            joined_at = extras.joined_at or staging.NULL
            lines.append(f"{number}\t{fields}\t{{{ids}}}\t{joined_at}\n")
    staging.copy_extras(uow, "".join(lines))


def left_out(
    uow: UnitOfWork, task: MemberImport, rows: Sequence[JudgedRow], tag_ids: TagIds
) -> dict[int, list[str]]:
    """Sentences on the values that rows are taken over without, by the rows' numbers.

    Call it once the rows are judged: it takes tags off rows whose members would have too many.
    """
    found: dict[int, list[str]] = {}
    for number, extras in of_rows(rows):
        told = [*extras.left_out]
        missing = [name for name in extras.tags if name not in tag_ids]
        if missing and not task.dry_run:
            told.append(f"The list has no room for more tags, such as {missing[0]!r}.")
        if told:
            found[number] = told
    if tag_ids:
        too_many = uow.session.scalars(text(_DROP_TAGS), {"most": MAX_TAGS_OF_MEMBER})
        for number in too_many:
            found.setdefault(number, []).append(f"A member has at most {MAX_TAGS_OF_MEMBER} tags.")
    return found


def _ids(extras: RowExtras, tag_ids: TagIds) -> Iterator[int]:
    return (tag_ids[name] for name in extras.tags if name in tag_ids)


_DROP_TAGS = f"""
UPDATE {STAGED_EXTRAS} AS e SET tag_ids = '{{}}'
FROM {JUDGED} AS j CROSS JOIN LATERAL (
    SELECT tag_ids FROM subscriptions WHERE id = j.subscription_id OFFSET 0
) AS m
WHERE j.number = e.number AND cardinality(m.tag_ids) + cardinality(e.tag_ids) > :most
    AND cardinality(ARRAY(SELECT unnest(m.tag_ids) UNION SELECT unnest(e.tag_ids))) > :most
RETURNING e.number
"""  # noqa: S608
