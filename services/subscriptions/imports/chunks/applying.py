"""Applies one chunk of imported rows to a list in one transaction.

``COPY`` loads the rows of a chunk into a temporary table. An SQL statement, defined in
``judge_statements``, compares the rows with existing people, subscriptions and opt-outs. Finally, a
few SQL statements, defined in ``write_statements``, write all changes.

While a chunk is being applied, a lock prevents other changes to the list. Several chunks of an
import can be applied at the same time, because no person is in two chunks. People are inserted in
alphabetical order of their addresses, so that two imports can't deadlock.
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
from core.errors.jobs import JOB_ROWS_FAILED
from core.logging import get_logger
from core.settings.notations import PlanQuota
from models import ImportChunk, MemberImport
from services.access import quotas
from services.engagement import answers
from services.jobs.lease import Lease, renew_lease
from services.jobs.transitions import record_progress
from services.subscriptions import bulk_files, deny_lists, lists
from services.subscriptions.imports.chunks import (
    chunk_extras,
    judge_statements,
    rejected_rows,
    request_reports,
    staging,
    write_statements,
)
from services.subscriptions.imports.chunks.chunk_extras import TagIds
from services.subscriptions.imports.chunks.chunks import ROWS_PER_CHUNK, PreparedChunk
from services.subscriptions.imports.chunks.staging import JUDGED
from services.subscriptions.imports.chunks.verdicts import (
    ADDED,
    ALREADY,
    DENIED,
    LEFT,
    OPTED_OUT,
    OVER_QUOTA,
    VERDICTS,
)
from services.subscriptions.imports.columns.samples import add_problems
from services.subscriptions.imports.judged_rows import JudgedRow
from services.subscriptions.imports.rows import OmittedValue
from services.subscriptions.members import bounces, locks, opt_out_checks
from storage.encryption import seal
from storage.expected_errors import get_constraint
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

_ALL_VERDICTS = (*VERDICTS, OVER_QUOTA)
# If a member changes their address during an import, the import may try to add the member a second
# time. Adding a member twice violates a unique constraint. The error is temporary, because a retry
# of the chunk finds the member by the new address.
_TRANSIENT_CONSTRAINTS = frozenset({"uq_subscriptions_user_id_list_id"})
# The database constraints that an insert of new people may violate. A new person's random id can
# collide with an existing id.
_PEOPLE_CONSTRAINTS = frozenset({"uq_users_email", "pk_users"})


class EarlierChunkPending(Exception):
    """Raised if a chunk must wait for preceding chunks because hardly any member quota is left."""


class ChunkFailed(Exception):
    """Raised if the database rejects a chunk's changes, and would reject them again on a retry."""

    def __init__(self, lines: tuple[int, int]) -> None:
        super().__init__(f"lines {lines[0]} to {lines[1]}")
        self.lines = lines


@dataclass(frozen=True)
class AppliedChunk:
    """The result of applying a chunk.

    Attributes:
        counts: maps each verdict to the number of rows with this verdict. Rows with the verdict
            ``left`` also count towards the verdict ``opted_out``.
        dropped_expiries: maps line numbers to expiry dates that weren't stored, because the member
            has no paid tier.
    """

    counts: Counter[str]
    updated: int
    left_out: int
    dropped_expiries: Mapping[int, OmittedValue]
    not_added: bytes
    report: Mapping[str, Any] | None


def commit_chunk(
    resources: Resources,
    import_id: int,
    chunk: PreparedChunk,
    lock_job: Callable[[UnitOfWork], Lease],
) -> None:
    """Apply a chunk of an import, and update the import's row counts in the same transaction.

    ``lock_job`` locks the import's job until the transaction ends, and returns the job's lease.
    Raises ``ChunkFailed`` if the database rejects the changes of the chunk. Raises
    ``list.not_found`` if the list was archived.
    """
    tag_ids: TagIds = {}
    if chunk.has_extras:
        with resources.unit_of_work() as uow:
            task = uow.session.get_one(MemberImport, import_id)
        tag_ids = chunk_extras.create_tags(resources, task, chunk.rows)
    try:
        with resources.unit_of_work() as uow:
            task = uow.session.get_one(MemberImport, import_id)
            try:
                lists.get_list(uow, task.list_id)
            except DomainError as error:
                # Report the import as invalid, because the list was archived after the import was
                # accepted.
                raise DomainError(Kind.INVALID, error.code, error.message) from None
            applied = apply_chunk(uow, task, chunk, tag_ids)
            key = bulk_files.unwrap_key(resources, task)
            name = rejected_rows.get_encryption_name(task.object_prefix, chunk.number)
            not_added = seal(applied.not_added, key, name)
            _count_rows(uow, lock_job(uow), task, chunk, applied)
            if applied.dropped_expiries:
                add_problems(resources, task, applied.dropped_expiries)
            uow.session.add(
                ImportChunk(
                    import_id=task.id,
                    number=chunk.number,
                    not_added=not_added,
                    report=applied.report,
                )
            )
    except IntegrityError as error:
        constraint = get_constraint(error)
        if constraint in _TRANSIENT_CONSTRAINTS:
            raise TransientError("another request changed the list at the same time") from error
        log.exception("import.chunk_broke", number=chunk.number, constraint=constraint)
        raise ChunkFailed(chunk.first_and_last_line) from error


def commit_own_chunk(
    resources: Resources, lease: Lease, import_id: int, chunk: PreparedChunk
) -> None:
    """Apply a chunk in the import's own job. ``lease`` is the lease of this job."""

    def lock_job(uow: UnitOfWork) -> Lease:
        # The lock on the import's job prevents two transactions from updating the row counts at the
        # same time.
        renew_lease(uow, lease)
        return lease

    try:
        commit_chunk(resources, import_id, chunk, lock_job)
    except ChunkFailed as error:
        first, last = error.lines
        raise JOB_ROWS_FAILED(first=first, last=last) from None


def apply_chunk(
    uow: UnitOfWork, task: MemberImport, chunk: PreparedChunk, tag_ids: TagIds
) -> AppliedChunk:
    """Add and update the members in a chunk, except people with an opt-out or on a deny list.

    Members beyond the owner's quota aren't added. ``tag_ids`` maps the tag names in the chunk to
    tag ids.
    """
    # Copy the rows before locking the list, so that other changes to the list don't wait for the
    # copy.
    staging.copy_rows(uow, chunk.lines)
    (locks.lock_list_for_chunk if task.side_by_side else locks.lock_list)(uow, task.list_id)
    # The Python list ``verdicts`` contains a verdict on each row of the chunk. The temporary table
    # JUDGED contains only those rows of the chunk that may change the list.
    verdicts = list(chunk.verdicts)
    parameters = _build_parameters(task)
    parameters["has_opt_outs"] = opt_out_checks.has_opt_outs(uow, task.list_id)
    parameters["has_address_opt_outs"] = opt_out_checks.has_address_opt_outs(
        uow.session.connection(), task.list_id
    )
    parameters["has_bounces"] = bounces.has_bounces(uow, task.list_id)
    needs_digests = answers.has_unclaimed_refusals(uow, task.list_id) or any(
        parameters[name] for name in ("has_opt_outs", "has_address_opt_outs", "has_bounces")
    )
    staging.copy_digests(uow, chunk.rows, all_rows=needs_digests)
    if chunk.has_extras:
        chunk_extras.copy_extras(uow, chunk.rows, tag_ids)
    judge = text(judge_statements.JUDGE_STATEMENTS[chunk.has_extras])
    for verdict, numbers in uow.session.execute(judge, parameters):
        for number in numbers:
            verdicts[number] = verdict
    left_out = (
        chunk_extras.describe_omissions(uow, task, chunk.rows, tag_ids) if chunk.has_extras else {}
    )
    may_update = parameters["update"] or chunk.has_extras
    updated = _fetch_count(uow, judge_statements.COUNT_UPDATED) if may_update else 0
    _deny_rows(uow, task, chunk, verdicts)
    if not (task.dry_run or task.by_operator):
        _limit_to_quota(uow, task, chunk.number, verdicts)
    counts = Counter(verdicts)
    if not task.dry_run and (counts[ADDED] or counts[LEFT] or updated):
        _write_rows(uow, task, counts, chunk)
    if not task.dry_run and chunk.has_extras:
        chunk_extras.add_claims(uow, task, chunk.rows, verdicts)
    counts[OPTED_OUT] += counts.pop(LEFT, 0)
    left_out = {
        number: sentences
        for number, sentences in left_out.items()
        if verdicts[number] in (ADDED, ALREADY)
    }
    expiries = _find_dropped_expiries(uow, task, chunk.rows)
    for number, expiry in expiries.items():
        left_out[number] = [*left_out.get(number, ()), str(expiry)]
    width = len(rejected_rows.get_header(task))
    return AppliedChunk(
        counts=counts,
        updated=updated,
        left_out=sum(map(len, left_out.values())),
        dropped_expiries={chunk.rows[number].line: each for number, each in expiries.items()},
        not_added=rejected_rows.format_csv_lines(chunk.rows, verdicts, left_out, width),
        report=request_reports.build_report(chunk.rows, verdicts, left_out)
        if task.source == "members"
        else None,
    )


def _deny_rows(
    uow: UnitOfWork, task: MemberImport, chunk: PreparedChunk, verdicts: list[str]
) -> None:
    added = {
        chunk.rows[position].email: position
        for position, verdict in enumerate(verdicts)
        if verdict == ADDED
    }
    denied = deny_lists.find_denied(uow, task.user_id, added) if added else set[str]()
    if positions := [added[address] for address in denied]:
        _execute_write(uow, judge_statements.MARK_DENIED, {"numbers": positions})
    for position in positions:
        verdicts[position] = DENIED


def _limit_to_quota(uow: UnitOfWork, task: MemberImport, number: int, verdicts: list[str]) -> None:
    """Set the verdict ``OVER_QUOTA`` on each row that would add a member beyond the owner's quota.

    Raises ``EarlierChunkPending``.
    """
    added = [position for position, verdict in enumerate(verdicts) if verdict == ADDED]
    if not added:
        return
    room = None
    if not quotas.lock_quota_share(uow, task.user_id, PlanQuota.MEMBERS, share_size=ROWS_PER_CHUNK):
        room = quotas.lock_quota(uow, task.user_id, PlanQuota.MEMBERS)
        earlier = ImportChunk.import_id == task.id, ImportChunk.number < number
        if uow.session.scalar(select(func.count()).where(*earlier)) != number:
            raise EarlierChunkPending
    # Once a new member has exceeded the quota, reject all new members in the following rows of the
    # file. Read ``over_quota`` after locking the quota, because another chunk may have used up the
    # quota in the meantime.
    over_quota = select(MemberImport.over_quota).where(MemberImport.id == task.id)
    room = 0 if uow.session.scalar(over_quota) else room
    rejected_positions = [] if room is None else added[max(room, 0) :]
    if rejected_positions:
        _execute_write(uow, judge_statements.MARK_OVER_QUOTA, {"first": rejected_positions[0]})
    for position in rejected_positions:
        verdicts[position] = OVER_QUOTA


def _write_rows(
    uow: UnitOfWork, task: MemberImport, counts: Counter[str], chunk: PreparedChunk
) -> None:
    parameters = _build_parameters(task)
    known, new, changed = uow.session.execute(text(write_statements.COUNT_WRITES)).one()
    if known and _fetch_count(uow, write_statements.LOCK_KNOWN_PEOPLE) != known:
        # Retry the chunk, because a person was erased after the rows were compared with the
        # database.
        raise TransientError("a person was erased at the same time")
    if new:
        _add_people(uow, new)
    if counts[LEFT]:
        causes = parameters | _find_undelivered_rows(chunk.rows)
        _execute_write(uow, write_statements.ADD_OPT_OUTS, causes)
        _execute_write(uow, write_statements.UNSUBSCRIBE, causes)
    if changed:
        _execute_write(
            uow, write_statements.build_changes_statement(has_extras=chunk.has_extras), parameters
        )
        _execute_write(
            uow, write_statements.build_update_statement(has_extras=chunk.has_extras), parameters
        )
    if counts[ADDED]:
        _execute_write(
            uow, write_statements.build_insert_statement(has_extras=chunk.has_extras), parameters
        )
        if bounces.has_bounces(uow, task.list_id):
            _execute_write(uow, write_statements.CLAIM_BOUNCES, parameters)
        if answers.has_unclaimed_refusals(uow, task.list_id):
            _execute_write(uow, write_statements.CLAIM_REFUSALS, parameters)


def _add_people(uow: UnitOfWork, count: int) -> None:
    try:
        # Insert people without checking for conflicts, because the check makes inserts take 50 %
        # longer.
        with uow.session.begin_nested():
            _execute_write(uow, write_statements.ADD_PEOPLE)
    except IntegrityError as error:
        if get_constraint(error) not in _PEOPLE_CONSTRAINTS:
            raise
        # Insert only the missing people, because a concurrent transaction has inserted some of the
        # people.
        added = _execute_write(uow, write_statements.ADD_MISSING_PEOPLE)
        if added != count and _execute_write(uow, write_statements.FIND_PEOPLE_AGAIN) != count:
            raise TransientError("a person was created and erased at the same time") from None


def _find_undelivered_rows(rows: list[JudgedRow]) -> dict[str, list[int]]:
    statuses = {"bounced": ("bounced", "cleaned"), "complained": ("complained",)}
    return {
        name: [position for position, row in enumerate(rows) if row.opt_out in words]
        for name, words in statuses.items()
    }


_DROPPED_EXPIRIES = f"""
SELECT number FROM {JUDGED} WHERE drops_expiry AND verdict IN ('added', 'already') ORDER BY number
"""  # noqa: S608


def _find_dropped_expiries(
    uow: UnitOfWork, task: MemberImport, rows: Sequence[JudgedRow]
) -> dict[int, OmittedValue]:
    if not any(row.tier is None and row.paid_expiry for row in rows):
        return {}
    columns: Sequence[str] = (task.description or {}).get("columns", {}).get("paid_expiry", ())
    column = next(iter(columns), "paid_expiry")
    numbers = uow.session.scalars(text(_DROPPED_EXPIRIES))
    return {
        number: OmittedValue(column, "requires a paid tier", rows[number].paid_expiry)
        for number in numbers
    }


def _count_rows(
    uow: UnitOfWork, lease: Lease, task: MemberImport, chunk: PreparedChunk, applied: AppliedChunk
) -> None:
    """Add the row counts of a chunk to the import. The caller must have locked the import's job."""
    # Reload the import, because another chunk may have changed the import's row counts in the
    # meantime.
    uow.session.refresh(task)
    # To prevent deadlocks, all transactions lock the import's job before the import. If another
    # worker has taken over the import's job, the chunk's transaction is rolled back.
    earlier_rows = sum(getattr(task, verdict) for verdict in _ALL_VERDICTS)
    processed_rows = earlier_rows + len(chunk.rows)
    record_progress(uow, lease, done=processed_rows, total=task.received if task.is_split else None)
    for verdict, rows in applied.counts.items():
        setattr(task, verdict, getattr(task, verdict) + rows)
    task.updated += applied.updated
    task.left_out += applied.left_out
    task.applied += 1
    uow.after_commit(partial(IMPORTED_ROWS.inc, len(chunk.rows)))


def _build_parameters(task: MemberImport) -> dict[str, Any]:
    ids = {"list_id": task.list_id, "import_id": task.id, "user_id": task.user_id}
    return {**ids, **judge_statements.build_change_parameters(task)}


def _execute_write(
    uow: UnitOfWork, statement: str, parameters: dict[str, Any] | None = None
) -> int:
    result = uow.session.execute(text(statement), parameters)
    return int(result.rowcount)  # type: ignore[attr-defined]


def _fetch_count(uow: UnitOfWork, statement: str, parameters: dict[str, Any] | None = None) -> int:
    return uow.session.scalar(text(statement), parameters) or 0
