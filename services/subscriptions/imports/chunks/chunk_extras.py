"""Imports further data of the members in a chunk: fields, tags, join dates, consent and origins.

The members' fields, tags, join dates and origins are first copied into a separate temporary table.
This table contains a line for each imported row that has any of these data.
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
from services.subscriptions.imports.chunks import staging
from services.subscriptions.imports.chunks.judge_statements import (
    JUDGE_AGAIN,
    build_change_parameters,
)
from services.subscriptions.imports.chunks.staging import JUDGED, STAGED_EXTRAS
from services.subscriptions.imports.chunks.verdicts import ADDED, ALREADY
from services.subscriptions.imports.columns.column_layout import ORIGIN_PREFIX
from services.subscriptions.imports.judged_rows import JudgedRow
from services.subscriptions.imports.rows import RowExtras
from services.subscriptions.sign_up_origins import Origin
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

TagIds = Mapping[str, int]
# The recorded source of a consent claim if the file's product is unknown.
_UNKNOWN_PRODUCT = "file"


def create_tags(resources: Resources, task: MemberImport, rows: Sequence[JudgedRow]) -> TagIds:
    """Create the missing tags that a chunk's rows name, and map all tag names to tag ids.

    The result omits new tags that would exceed the maximum number of tags per list. Tags are
    created in a separate short transaction, because other transactions that create the same tag
    wait until it commits.
    """
    # If several rows spell a new tag differently, the first spelling is stored.
    names = dict.fromkeys(name for _, extras in _list_extras(rows) for name in extras.tags)
    if not names:
        return {}
    with suppress(DomainError), resources.unit_of_work() as uow:
        return tags.find_tag_ids(uow, task.list_id, names, create=not task.dry_run)
    with resources.unit_of_work() as uow:
        return tags.find_tag_ids(uow, task.list_id, names, create=False)


def copy_extras(uow: UnitOfWork, rows: Sequence[JudgedRow], tag_ids: TagIds) -> None:
    lines = []
    for number, extras in _list_extras(rows):
        origin = _get_origin(extras.claim)
        if extras.fields or extras.tags or extras.joined_at or origin:
            fields = staging.escape_value(orjson.dumps(extras.fields).decode())
            ids = sorted({tag_ids[name] for name in extras.tags if name in tag_ids})
            ids_text = ",".join(map(str, ids))
            joined_at = extras.joined_at or staging.NULL
            origin_text = (
                staging.escape_value(orjson.dumps(origin).decode()) if origin else staging.NULL
            )
            lines.append(f"{number}\t{fields}\t{{{ids_text}}}\t{joined_at}\t{origin_text}\n")
    staging.copy_lines(uow, STAGED_EXTRAS, "".join(lines))


_DROP_TAGS = f"""
UPDATE {STAGED_EXTRAS} AS e SET tag_ids = '{{}}'
FROM {JUDGED} AS j CROSS JOIN LATERAL (
    SELECT tag_ids FROM subscriptions WHERE id = j.subscription_id OFFSET 0
) AS m
WHERE j.number = e.number AND cardinality(m.tag_ids) + cardinality(e.tag_ids) > :most
    AND (SELECT count(*) FROM tags WHERE id = ANY (m.tag_ids || e.tag_ids)) > :most
RETURNING e.number
"""  # noqa: S608


def describe_omissions(
    uow: UnitOfWork, task: MemberImport, rows: Sequence[JudgedRow], tag_ids: TagIds
) -> dict[int, list[str]]:
    """Return sentences about the values that aren't imported, keyed by row number.

    The temporary table ``JUDGED`` must already contain the chunk's rows. If a row would give a
    member too many tags, none of the row's tags are added.
    """
    sentences: dict[int, list[str]] = {}
    for number, extras in _list_extras(rows):
        reasons = [str(value) for value in extras.left_out]
        missing = [name for name in extras.tags if name not in tag_ids]
        if missing and not task.dry_run:
            reasons.append(f"The list has too many tags to add {missing[0]!r}.")
        if reasons:
            sentences[number] = reasons
    if tag_ids:
        dropped = uow.session.scalars(text(_DROP_TAGS), {"most": MAX_TAGS_OF_MEMBER}).all()
        for number in dropped:
            reason = f"A member can have at most {MAX_TAGS_OF_MEMBER} tags."
            sentences.setdefault(number, []).append(reason)
        if dropped:
            values = {"numbers": dropped, **build_change_parameters(task)}
            uow.session.execute(text(JUDGE_AGAIN), values)
    return sentences


_FIND_PEOPLE = f"SELECT email, user_id FROM {JUDGED} WHERE number = ANY(:numbers)"  # noqa: S608


def add_claims(
    uow: UnitOfWork, task: MemberImport, rows: Sequence[JudgedRow], verdicts: Sequence[str]
) -> None:
    claims_by_row = {
        number: [*_list_claims(rows[number].email, extras.claim)]
        for number, extras in _list_extras(rows)
        if extras.claim and verdicts[number] in (ADDED, ALREADY)
    }
    claims = [claim for row_claims in claims_by_row.values() for claim in row_claims]
    if claims:
        judged = uow.session.execute(text(_FIND_PEOPLE), {"numbers": list(claims_by_row)})
        people = {row.email: row.user_id for row in judged}
        product = (task.description or {}).get("product") or _UNKNOWN_PRODUCT
        record_claims(uow, task.id, claims, people=people, claimed_by=product)


def _list_claims(email: str, claim: Mapping[str, str]) -> Iterator[ClaimedConsent]:
    """Yield a claim that the person consented, and a claim that the person confirmed the consent.

    Only the first of these claims contains the origin of the sign-up. If an imported row has an
    origin but no consent, the function yields a single claim, with ``ConsentHow.IMPORT`` and the
    origin.
    """
    get = claim.get
    origin = _get_origin(claim)
    parts = {part for part in claim if not part.startswith(ORIGIN_PREFIX)}
    if not parts <= {"confirmed_at", "confirmed_ip"}:
        how = ConsentHow(get("how", ConsentHow.FORM))
        consented_at = _parse_moment(get("at"))
        yield ClaimedConsent(
            email, how, consented_at, get("ip"), get("url"), get("wording"), origin
        )
        origin = {}
    confirmed_at = _parse_moment(get("confirmed_at"))
    if confirmed_at or get("confirmed_ip"):
        confirmation = ConsentHow.CONFIRMATION
        yield ClaimedConsent(email, confirmation, confirmed_at, get("confirmed_ip"), origin=origin)
        origin = {}
    if origin:
        yield ClaimedConsent(email, ConsentHow.IMPORT, origin=origin)


def _get_origin(claim: Mapping[str, str]) -> Origin:
    return {
        part.removeprefix(ORIGIN_PREFIX): value
        for part, value in claim.items()
        if part.startswith(ORIGIN_PREFIX)
    }


def _parse_moment(cell: str | None) -> datetime | None:
    return None if cell is None else datetime.fromisoformat(cell)


def _list_extras(rows: Sequence[JudgedRow]) -> Iterator[tuple[int, RowExtras]]:
    for number, row in enumerate(rows):
        if row.extras is not None and row.code is None and row.opt_out is None:
            yield number, row.extras
