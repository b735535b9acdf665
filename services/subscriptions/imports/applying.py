"""Applies one chunk of rows to a list in one transaction, by set-based statements.

``COPY`` puts the rows into a temporary table. One statement judges all rows against the existing
people, subscriptions and opt-outs (``judge_statements``). Then a few statements write the changes
of all rows (``write_statements``).

The lock on the list excludes all other changes of the list until the commit. Only other chunks of
the same import may be applied at the same time, because they contain other people. People are
inserted in the order of their addresses, so that two imports can't deadlock.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError

from core.counters.work_metrics import IMPORTED_ROWS
from core.errors import DomainError, Kind, TransientError
from core.logging import get_logger
from core.settings.notations import PlanQuota
from models import ImportChunk, MemberImport
from services.access import quotas
from services.jobs.lease import Lease
from services.jobs.transitions import record_progress
from services.subscriptions import bulk_files, deny_lists, lists
from services.subscriptions.imports import (
    chunk_extras,
    judge_statements,
    rejected_rows,
    staging,
    write_statements,
)
from services.subscriptions.imports.chunk_extras import TagIds
from services.subscriptions.imports.chunks import ROWS_PER_CHUNK, PreparedChunk, lines_of
from services.subscriptions.imports.judged_rows import JudgedRow
from services.subscriptions.imports.rows import LeftOut
from services.subscriptions.imports.samples import add_problems
from services.subscriptions.imports.staging import JUDGED
from services.subscriptions.imports.verdicts import (
    ADDED,
    ALREADY,
    DENIED,
    LEFT,
    OPTED_OUT,
    OVER_QUOTA,
    VERDICTS,
)
from services.subscriptions.members import locks
from storage.encryption import seal
from storage.expected_errors import get_constraint
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)
_ALL_VERDICTS = (*VERDICTS, OVER_QUOTA)
# An account may move, without the list's lock, to the address of a row that is being applied: a
# chunk that took the row's person for a new one finds the member whom the list has already.
_PASSING = frozenset({"uq_subscriptions_user_id_list_id"})
# The id may be taken too: with millions of people, one of a million new ids may be.
_TAKEN = frozenset({"uq_users_email", "pk_users"})


class NotInTurn(Exception):
    """The plan is nearly full, so chunks go in their order, and an earlier one is not applied."""


class ChunkBroke(Exception):
    """The database refused what a chunk would write: a fault of ours, which no other try mends."""

    def __init__(self, lines: tuple[int, int]) -> None:
        super().__init__(f"lines {lines[0]} to {lines[1]}")
        self.lines = lines


@dataclass(frozen=True)
class AppliedChunk:
    """The result of one chunk.

    Attributes:
        counts: the number of rows with each verdict. Rows with the verdict ``left`` are counted as
            opted out.
        updated: the number of active members whose data the rows changed.
        left_out: the number of invalid values that were omitted from imported rows.
        dropped_expiries: expiry dates that were dropped because the member has no paid tier. The
            keys are line numbers.
        not_added: the CSV lines of rows that were added only in part or not at all.
    """

    counts: Counter[str]
    updated: int
    left_out: int
    dropped_expiries: Mapping[int, LeftOut]
    not_added: bytes


def commit(
    resources: Resources, import_id: int, chunk: PreparedChunk, hold: Callable[[UnitOfWork], Lease]
) -> None:
    """Apply a chunk, and count it, in one transaction.

    ``hold`` gives the hold on the import's job. Raises what it and ``apply`` raise, ``ChunkBroke``,
    and ``list.not_found`` for a list that was archived.
    """
    tag_ids: TagIds = {}
    if chunk.has_extras:
        with resources.unit_of_work() as uow:
            task = uow.session.get_one(MemberImport, import_id)
        tag_ids = chunk_extras.make_tags(resources, task, chunk.rows)
    try:
        with resources.unit_of_work() as uow:
            task = uow.session.get_one(MemberImport, import_id)
            try:
                lists.get(uow, task.list_id)
            except DomainError as error:
                # A list that was archived meanwhile takes no members. Invalid, not missing: the
                # list existed when the waiting caller named it.
                raise DomainError(Kind.INVALID, error.code, error.message) from None
            applied = apply(uow, task, chunk, tag_ids)
            key = bulk_files.data_key(resources, task)
            name = rejected_rows.rejects_name(task.object_prefix, chunk.number)
            not_added = seal(applied.not_added, key, name)
            _count_rows(uow, hold(uow), task, chunk, applied)
            if applied.dropped_expiries:
                add_problems(resources, task, applied.dropped_expiries)
            one = ImportChunk(import_id=task.id, number=chunk.number, not_added=not_added)
            uow.session.add(one)
    except IntegrityError as error:
        constraint = get_constraint(error)
        if constraint in _PASSING:
            raise TransientError("another act on the list came between") from error
        log.exception("import.chunk_broke", number=chunk.number, constraint=constraint)
        raise ChunkBroke(lines_of(chunk)) from error


def _count_rows(
    uow: UnitOfWork, lease: Lease, task: MemberImport, chunk: PreparedChunk, applied: AppliedChunk
) -> None:
    # Other chunks may have counted since; the hold keeps them out now.
    uow.session.refresh(task)
    # The job first, then the import: the order in which a transaction that ends both locks them.
    # If another worker has the job now, this rolls the chunk back.
    done = sum(getattr(task, verdict) for verdict in _ALL_VERDICTS) + len(chunk.rows)
    record_progress(uow, lease, done=done, total=task.received if task.is_split else None)
    for verdict, rows in applied.counts.items():
        setattr(task, verdict, getattr(task, verdict) + rows)
    task.updated += applied.updated
    task.left_out += applied.left_out
    task.applied += 1
    uow.after_commit(partial(IMPORTED_ROWS.inc, len(chunk.rows)))


def apply(
    uow: UnitOfWork, task: MemberImport, chunk: PreparedChunk, tag_ids: TagIds
) -> AppliedChunk:
    """Add and update members as the rows say, as far as opt-outs, deny lists and the plan allow it.

    ``tag_ids``: of the tags that the rows name. Raises ``NotInTurn``, ``TransientError``.
    """
    # Before the list is held: no other act needs to wait for it.
    staging.copy_rows(uow, chunk.lines)
    (locks.lock_list_as_chunk if task.side_by_side else locks.lock_list)(uow, task.list_id)
    # Each row's verdict. Rows that change something are in the table JUDGED too.
    found = list(chunk.verdicts)
    parameters = _values_of(task)
    parameters["has_opt_outs"] = _count(uow, judge_statements.HAS_OPT_OUTS, parameters) > 0
    staging.copy_digests(uow, chunk.rows, all_rows=parameters["has_opt_outs"])
    if chunk.has_extras:
        chunk_extras.copy_extras(uow, chunk.rows, tag_ids)
    judge = text(judge_statements.JUDGE[chunk.has_extras])
    for verdict, numbers in uow.session.execute(judge, parameters):
        for number in numbers:
            found[number] = verdict
    told = chunk_extras.left_out(uow, task, chunk.rows, tag_ids) if chunk.has_extras else {}
    may_update = parameters["update"] or chunk.has_extras
    updated = _count(uow, judge_statements.COUNT_UPDATED) if may_update else 0
    _deny(uow, task, chunk, found)
    if not (task.dry_run or task.by_operator):
        _hold_to_quota(uow, task, chunk.number, found)
    counts = Counter(found)
    if not task.dry_run and (counts[ADDED] or counts[LEFT] or updated):
        _write(uow, task, counts, chunk)
    if not task.dry_run and chunk.has_extras:
        chunk_extras.keep_claims(uow, task, chunk.rows, found)
    counts[OPTED_OUT] += counts.pop(LEFT, 0)
    told = {number: some for number, some in told.items() if found[number] in (ADDED, ALREADY)}
    dropped = dropped_expiries(uow, task, chunk.rows)
    for number, expiry in dropped.items():
        told[number] = [*told.get(number, ()), str(expiry)]
    width = len(rejected_rows.header_of(task))
    not_added = rejected_rows.rejects_csv(chunk.rows, found, told, width)
    by_line = {chunk.rows[number].line: expiry for number, expiry in dropped.items()}
    return AppliedChunk(counts, updated, sum(map(len, told.values())), by_line, not_added)


def _deny(uow: UnitOfWork, task: MemberImport, chunk: PreparedChunk, found: list[str]) -> None:
    """Change the verdicts of the rows that would be added, and that a deny list keeps out."""
    added = {
        chunk.rows[place].email: place for place, verdict in enumerate(found) if verdict == ADDED
    }
    denied = deny_lists.find_denied(uow, task.user_id, added) if added else set[str]()
    if places := [added[address] for address in denied]:
        _rows(uow, judge_statements.PUT_DENIED, {"numbers": places})
    for place in places:
        found[place] = DENIED


def _hold_to_quota(uow: UnitOfWork, task: MemberImport, number: int, found: list[str]) -> None:
    """Change the verdicts of the rows that the owner's plan has no room for."""
    added = [place for place, verdict in enumerate(found) if verdict == ADDED]
    if not added:
        return
    members, most = PlanQuota.MEMBERS, ROWS_PER_CHUNK
    room = None
    if not quotas.share(uow, task.user_id, members, most=most):
        room = quotas.hold(uow, task.user_id, members)
        earlier = ImportChunk.import_id == task.id, ImportChunk.number < number
        if uow.session.scalar(select(func.count()).where(*earlier)) != number:
            raise NotInTurn
    # Once a row had no room, no row is added any more, so that an import has one end. Read after
    # the quota's lock: a chunk beside this one may have found no room.
    over_quota = select(MemberImport.over_quota).where(MemberImport.id == task.id)
    room = 0 if uow.session.scalar(over_quota) else room
    beyond = [] if room is None else added[max(room, 0) :]
    if beyond:
        _rows(uow, judge_statements.PUT_OVER_QUOTA, {"first": beyond[0]})
    for place in beyond:
        found[place] = OVER_QUOTA


def _write(uow: UnitOfWork, task: MemberImport, counts: Counter[str], chunk: PreparedChunk) -> None:
    parameters = _values_of(task)
    known, wanted, changed = uow.session.execute(text(write_statements.COUNT_WRITES)).one()
    if known and _count(uow, write_statements.HOLD_KNOWN_PEOPLE) != known:
        # A person was erased after the look-up.
        raise TransientError("a person was erased meanwhile")
    if wanted:
        try:
            # To look for a conflict before each row costs as much as half of the row.
            with uow.session.begin_nested():
                _rows(uow, write_statements.ADD_PEOPLE)
        except IntegrityError as error:
            if get_constraint(error) not in _TAKEN:
                raise
            # Another transaction made one of these people meanwhile, and may have erased them.
            added = _rows(uow, write_statements.ADD_MISSING_PEOPLE)
            if added != wanted and _rows(uow, write_statements.FIND_PEOPLE_AGAIN) != wanted:
                raise TransientError("a person was made meanwhile, and erased") from None
    if counts[LEFT]:
        _rows(uow, write_statements.KEEP_OPT_OUTS, parameters | undelivered(chunk.rows))
        _rows(uow, write_statements.LEAVE, parameters)
    if changed:
        _rows(uow, write_statements.keep_changes(has_extras=chunk.has_extras), parameters)
        _rows(uow, write_statements.change(has_extras=chunk.has_extras), parameters)
    if counts[ADDED]:
        _rows(uow, write_statements.insert(has_extras=chunk.has_extras), parameters)


_DROPPED_EXPIRIES = f"""
SELECT number FROM {JUDGED} WHERE drops_expiry AND verdict IN ('added', 'already') ORDER BY number
"""  # noqa: S608


def dropped_expiries(
    uow: UnitOfWork, task: MemberImport, rows: Sequence[JudgedRow]
) -> dict[int, LeftOut]:
    """Return the ends that aren't stored because the member has no paid tier, by row number."""
    if not any(row.tier is None and row.paid_expiry for row in rows):
        return {}
    columns: Sequence[str] = (task.description or {}).get("columns", {}).get("paid_expiry", ())
    column = next(iter(columns), "paid_expiry")
    numbers = uow.session.scalars(text(_DROPPED_EXPIRIES))
    return {n: LeftOut(column, "needs a paid tier", rows[n].paid_expiry) for n in numbers}


def undelivered(rows: list[JudgedRow]) -> dict[str, list[int]]:
    """The places of the rows whose addresses bounced, and of those whose people complained."""
    of = {"bounced": ("bounced", "cleaned"), "complained": ("complained",)}
    return {
        name: [place for place, row in enumerate(rows) if row.left in words]
        for name, words in of.items()
    }


def _values_of(task: MemberImport) -> dict[str, Any]:
    ids = {"list_id": task.list_id, "import_id": task.id, "user_id": task.user_id}
    return {**ids, "update": task.on_existing == "update"}


def _rows(uow: UnitOfWork, statement: str, parameters: dict[str, Any] | None = None) -> int:
    """The number of rows that the statement wrote."""
    result = uow.session.execute(text(statement), parameters)
    return int(result.rowcount)  # type: ignore[attr-defined]


def _count(uow: UnitOfWork, statement: str, parameters: dict[str, Any] | None = None) -> int:
    return uow.session.scalar(text(statement), parameters) or 0
