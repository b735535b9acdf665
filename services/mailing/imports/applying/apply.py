"""Applies one chunk of rows to a list: in one transaction, by set-based statements.

The rows are copied into a temporary table and judged there against people, subscriptions and
opt-outs. Then a few statements write the consequences for all rows at once. The list's lock
(``services.mailing.subscriptions.locks``) keeps every other act on the list out until the commit,
so that a verdict still holds when it is written; only other chunks of the same import may come in,
whose people are others. People are inserted in the order of their addresses, so that two imports
can't wait for each other.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError

from core.errors import TransientError
from core.settings import Settings
from core.settings.plan_quotas import PlanQuota
from models import ImportChunk, MemberImport
from services.access import quotas
from services.mailing import deny_lists
from services.mailing.imports.applying import (
    consequences,
    extras,
    file_claims,
    judging,
    staging,
    verdicts,
)
from services.mailing.imports.applying.extras import TagIds
from services.mailing.imports.applying.verdicts import (
    ADDED,
    ALREADY,
    DENIED,
    LEFT,
    OPTED_OUT,
    OVER_QUOTA,
)
from services.mailing.imports.chunks import ROWS_PER_CHUNK, JudgedRow, verdict_of
from services.mailing.subscriptions import locks
from storage.unit_of_work import UnitOfWork


class NotInTurn(Exception):
    """The plan is nearly full, so chunks go in their order, and an earlier one is not applied."""


@dataclass(frozen=True)
class AppliedChunk:
    """The result of one chunk.

    Attributes:
        counts: the number of rows by verdict; ``left`` rows count as opted out.
        updated: the number of members, active before, who got another name or tier.
        left_out: the number of values that rows were taken over without.
        not_added: the CSV lines of all rows that were not added, or not whole.
    """

    counts: Counter[str]
    updated: int
    left_out: int
    not_added: bytes


@dataclass(frozen=True)
class PreparedChunk:
    """Rows of which all is prepared that needs no database.

    Attributes:
        verdicts: of each row by itself, and ``already`` for those that the list decides on.
        lines: those rows, for COPY.
        has_extras: whether some row has fields or tags, say.
    """

    number: int
    rows: list[JudgedRow]
    verdicts: list[str]
    lines: str
    has_extras: bool


def prepare(number: int, rows: list[JudgedRow]) -> PreparedChunk:
    """The rows of a chunk with their lines for COPY."""
    found = [verdict_of(row) or ALREADY for row in rows]
    has_extras = any(row.extras is not None for row in rows)
    return PreparedChunk(number, rows, found, staging.copy_lines(rows), has_extras)


def apply(
    uow: UnitOfWork, settings: Settings, task: MemberImport, chunk: PreparedChunk, tag_ids: TagIds
) -> AppliedChunk:
    """Add and update members as the rows say, as far as opt-outs, deny lists and the plan allow it.

    ``tag_ids``: of the tags that the rows name. Raises ``NotInTurn``, ``TransientError``.
    """
    # Before the list is held: no other act needs to wait for it.
    staging.copy_rows(uow, chunk.lines)
    (locks.lock_list_as_chunk if task.side_by_side else locks.lock_list)(uow, task.list_id)
    # Each row's verdict. Rows that change something are in the table JUDGED too.
    found = list(chunk.verdicts)
    update = task.on_existing == "update"
    parameters: dict[str, Any] = {"list_id": task.list_id, "update": update}
    parameters["has_opt_outs"] = _count(uow, judging.HAS_OPT_OUTS, parameters) > 0
    staging.copy_digests(uow, settings.keyring, chunk.rows, all_rows=parameters["has_opt_outs"])
    if chunk.has_extras:
        extras.copy_extras(uow, chunk.rows, tag_ids)
    for verdict, numbers in uow.session.execute(text(judging.JUDGE[chunk.has_extras]), parameters):
        for number in numbers:
            found[number] = verdict
    told = extras.left_out(uow, task, chunk.rows, tag_ids) if chunk.has_extras else {}
    updated = _count(uow, judging.COUNT_UPDATED) if update or chunk.has_extras else 0
    _deny(uow, settings, task, chunk, found)
    if not (task.dry_run or task.by_operator):
        _hold_to_quota(uow, settings, task, chunk.number, found)
    counts = Counter(found)
    if not task.dry_run and (counts[ADDED] or counts[LEFT] or updated):
        _write(uow, task, counts, chunk)
    if not task.dry_run and chunk.has_extras:
        file_claims.keep_claims(uow, settings, task, chunk.rows, found)
    counts[OPTED_OUT] += counts.pop(LEFT, 0)
    width = len(verdicts.header_of(task))
    told = {number: some for number, some in told.items() if found[number] in (ADDED, ALREADY)}
    not_added = verdicts.rejects_csv(chunk.rows, found, told, width)
    return AppliedChunk(counts, updated, sum(map(len, told.values())), not_added)


def _deny(
    uow: UnitOfWork, settings: Settings, task: MemberImport, chunk: PreparedChunk, found: list[str]
) -> None:
    """Change the verdicts of the rows that would be added, and that a deny list keeps out."""
    added = {
        chunk.rows[place].email: place for place, verdict in enumerate(found) if verdict == ADDED
    }
    denied = deny_lists.denied_of(uow, settings, task.user_id, added) if added else set[str]()
    if places := [added[address] for address in denied]:
        _rows(uow, judging.PUT_DENIED, {"numbers": places})
    for place in places:
        found[place] = DENIED


def _hold_to_quota(
    uow: UnitOfWork, settings: Settings, task: MemberImport, number: int, found: list[str]
) -> None:
    """Change the verdicts of the rows that the owner's plan has no room for."""
    added = [place for place, verdict in enumerate(found) if verdict == ADDED]
    if not added:
        return
    room = _room(uow, settings, task, number)
    beyond = [] if room is None else added[max(room, 0) :]
    if beyond:
        _rows(uow, judging.PUT_OVER_QUOTA, {"first": beyond[0]})
    for place in beyond:
        found[place] = OVER_QUOTA


def _room(uow: UnitOfWork, settings: Settings, task: MemberImport, number: int) -> int | None:
    """How many members the chunk of this ``number`` may add; ``None`` for all of its rows."""
    members, most = PlanQuota.MEMBERS, ROWS_PER_CHUNK
    room = None
    if not quotas.share(uow, settings, task.user_id, members, most=most):
        room = quotas.hold(uow, settings, task.user_id, members)
        earlier = ImportChunk.import_id == task.id, ImportChunk.number < number
        if uow.session.scalar(select(func.count()).where(*earlier)) != number:
            raise NotInTurn
    # Once a row had no room, no row is added any more, so that an import has one end. Read after
    # the quota's lock: a chunk beside this one may have found no room.
    over_quota = select(MemberImport.over_quota).where(MemberImport.id == task.id)
    return 0 if uow.session.scalar(over_quota) else room


def _write(uow: UnitOfWork, task: MemberImport, counts: Counter[str], chunk: PreparedChunk) -> None:
    parameters: dict[str, Any] = {
        "list_id": task.list_id,
        "import_id": task.id,
        "user_id": task.user_id,
        "update": task.on_existing == "update",
    }
    known, wanted, changed = uow.session.execute(text(consequences.COUNT_WRITES)).one()
    if known and _count(uow, consequences.HOLD_KNOWN_PEOPLE) != known:
        # A person was erased after the lookup; the address may now belong to a different person.
        raise TransientError("a person was erased meanwhile")
    if wanted:
        _add_people(uow, wanted)
    if counts[LEFT]:
        _rows(uow, consequences.KEEP_OPT_OUTS, parameters | consequences.undelivered(chunk.rows))
        _rows(uow, consequences.LEAVE, parameters)
    if changed:
        _rows(uow, consequences.keep_changes(has_extras=chunk.has_extras), parameters)
        _rows(uow, consequences.change(has_extras=chunk.has_extras), parameters)
    if counts[ADDED]:
        _rows(uow, consequences.insert(has_extras=chunk.has_extras), parameters)


def _add_people(uow: UnitOfWork, wanted: int) -> None:
    try:
        # To look for a conflict before each row costs as much as half of the row.
        with uow.session.begin_nested():
            _rows(uow, consequences.ADD_PEOPLE)
    except IntegrityError:
        # Another transaction made one of these people meanwhile, and may have erased them since.
        if (
            _rows(uow, consequences.ADD_MISSING_PEOPLE) != wanted
            and _rows(uow, consequences.FIND_PEOPLE_AGAIN) != wanted
        ):
            raise TransientError("a person was made meanwhile, and erased") from None


def _rows(uow: UnitOfWork, statement: str, parameters: dict[str, Any] | None = None) -> int:
    """The number of rows that the statement wrote."""
    result = uow.session.execute(text(statement), parameters)
    return int(result.rowcount)  # type: ignore[attr-defined]


def _count(uow: UnitOfWork, statement: str, parameters: dict[str, Any] | None = None) -> int:
    return uow.session.scalar(text(statement), parameters) or 0
