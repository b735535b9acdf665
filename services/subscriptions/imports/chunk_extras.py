"""The extras of a chunk's rows: fields, tags, joining dates and consent claims.

Extras are copied into a temporary table of their own. Only chunks whose rows have extras run the
statements that read this table.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import orjson
from sqlalchemy import text

from core.errors import DomainError
from models import ConsentHow, MemberImport
from services.subscriptions import tags
from services.subscriptions.consent.claims import ClaimedConsent, record_claims
from services.subscriptions.imports import staging
from services.subscriptions.imports.judge_statements import JUDGE_AGAIN
from services.subscriptions.imports.judged_rows import JudgedRow
from services.subscriptions.imports.rows import RowExtras
from services.subscriptions.imports.staging import JUDGED, STAGED_EXTRAS
from services.subscriptions.imports.verdicts import ADDED, ALREADY
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

TagIds = Mapping[str, int]
# Names who says so, where the file is of no product that we know.
_ANY_FILE = "file"


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
    with suppress(DomainError), resources.unit_of_work() as uow:
        return tags.find_tag_ids(uow, task.list_id, names, make=not task.dry_run)
    with resources.unit_of_work() as uow:
        return tags.find_tag_ids(uow, task.list_id, names, make=False)


def copy_extras(uow: UnitOfWork, rows: Sequence[JudgedRow], tag_ids: TagIds) -> None:
    lines = []
    for number, extras in of_rows(rows):
        if extras.fields or extras.tags or extras.joined_at:
            fields = staging.escaped(orjson.dumps(extras.fields).decode())
            own = sorted({tag_ids[name] for name in extras.tags if name in tag_ids})
            ids = ",".join(map(str, own))
            joined_at = extras.joined_at or staging.NULL
            lines.append(f"{number}\t{fields}\t{{{ids}}}\t{joined_at}\n")
    staging.copy(uow, STAGED_EXTRAS, "".join(lines))


_DROP_TAGS = f"""
UPDATE {STAGED_EXTRAS} AS e SET tag_ids = '{{}}'
FROM {JUDGED} AS j CROSS JOIN LATERAL (
    SELECT tag_ids FROM subscriptions WHERE id = j.subscription_id OFFSET 0
) AS m
WHERE j.number = e.number AND cardinality(m.tag_ids) + cardinality(e.tag_ids) > :most
    AND (SELECT count(*) FROM tags WHERE id = ANY (m.tag_ids || e.tag_ids)) > :most
RETURNING e.number
"""  # noqa: S608


def left_out(
    uow: UnitOfWork, task: MemberImport, rows: Sequence[JudgedRow], tag_ids: TagIds
) -> dict[int, list[str]]:
    """Sentences on the values that rows are taken over without, by the rows' numbers.

    Call it once the rows are judged: it takes tags off rows whose members would have too many.
    """
    found: dict[int, list[str]] = {}
    for number, extras in of_rows(rows):
        told = [str(each) for each in extras.left_out]
        missing = [name for name in extras.tags if name not in tag_ids]
        if missing and not task.dry_run:
            told.append(f"The list has no room for more tags, such as {missing[0]!r}.")
        if told:
            found[number] = told
    if tag_ids:
        dropped = uow.session.scalars(text(_DROP_TAGS), {"most": MAX_TAGS_OF_MEMBER}).all()
        for number in dropped:
            found.setdefault(number, []).append(f"A member has at most {MAX_TAGS_OF_MEMBER} tags.")
        if dropped:
            values = {"numbers": dropped, "update": task.on_existing == "update"}
            uow.session.execute(text(JUDGE_AGAIN), values)
    return found


_PEOPLE = f"SELECT email, user_id FROM {JUDGED} WHERE number = ANY(:numbers)"  # noqa: S608


def keep_claims(
    uow: UnitOfWork, task: MemberImport, rows: Sequence[JudgedRow], found: Sequence[str]
) -> None:
    """Keep the claims about rows' members, who were written before.

    ``found``: each row's verdict.
    """
    claiming = {
        number: [*_claimed(rows[number].email, extras.claim)]
        for number, extras in of_rows(rows)
        if extras.claim and found[number] in (ADDED, ALREADY)
    }
    claims = [claimed for each in claiming.values() for claimed in each]
    if claims:
        judged = uow.session.execute(text(_PEOPLE), {"numbers": list(claiming)})
        people = {row.email: row.user_id for row in judged}
        product = (task.description or {}).get("product") or _ANY_FILE
        record_claims(uow, task.id, claims, people=people, claimed_by=product)


def _claimed(email: str, claim: Mapping[str, str]) -> Iterator[ClaimedConsent]:
    """The first asking and its confirmation are claims of their own."""
    get = claim.get
    at, confirmed_at = (
        None if (text := get(part)) is None else datetime.fromisoformat(text)
        for part in ("at", "confirmed_at")
    )
    if not claim.keys() <= {"confirmed_at", "confirmed_ip"}:
        how = ConsentHow(get("how", ConsentHow.FORM))
        yield ClaimedConsent(email, how, at, get("ip"), get("url"), get("wording"))
    if confirmed_at or get("confirmed_ip"):
        yield ClaimedConsent(email, ConsentHow.CONFIRMATION, confirmed_at, get("confirmed_ip"))
