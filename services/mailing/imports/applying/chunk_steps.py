"""One chunk from the object storage to its commit, with what an import and its job count."""

from collections.abc import Callable
from functools import partial

from sqlalchemy.exc import IntegrityError

from core.counters.work_metrics import IMPORTED_ROWS
from core.errors import DomainError, Kind, TransientError
from models import ImportChunk, MemberImport
from services.jobs import lease as leases
from services.jobs.lease import Lease
from services.mailing import lists, sealed_files
from services.mailing.imports.applying import apply, extras, verdicts
from services.mailing.imports.applying.apply import AppliedChunk, PreparedChunk
from services.mailing.imports.applying.extras import TagIds
from services.mailing.imports.applying.verdicts import OVER_QUOTA
from services.mailing.imports.chunks import chunk_key, decode
from services.mailing.imports.endings import VERDICTS
from storage.encryption import seal, unseal
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

_ALL_VERDICTS = (*VERDICTS, OVER_QUOTA)


def fetch(resources: Resources, task: MemberImport, number: int) -> PreparedChunk:
    """A stored chunk, ready to be applied."""
    name = chunk_key(task.object_prefix, number)
    key = sealed_files.data_key(resources, task)
    return apply.prepare(number, decode(unseal(resources.objects.get(name), key, name)))


def commit(
    resources: Resources,
    import_id: int,
    chunk: PreparedChunk,
    hold: Callable[[UnitOfWork], Lease],
) -> None:
    """Apply a chunk, and count it, in one transaction.

    Args:
        hold: gives the hold on the import's job, for this transaction alone.

    Raises what ``hold`` and ``apply.apply`` raise, and ``list.not_found`` for a list that was
    archived.
    """
    tag_ids = _tag_ids(resources, import_id, chunk) if chunk.has_extras else {}
    try:
        with resources.unit_of_work() as uow:
            task = uow.session.get_one(MemberImport, import_id)
            _require_list(uow, task)
            applied = apply.apply(uow, resources.settings, task, chunk, tag_ids)
            key = sealed_files.data_key(resources, task)
            name = verdicts.rejects_name(task.object_prefix, chunk.number)
            not_added = seal(applied.not_added, key, name)
            _count(uow, hold(uow), task, chunk, applied)
            # A chunk has one such row: a second application fails here, in any worker.
            uow.session.add(
                ImportChunk(import_id=task.id, number=chunk.number, not_added=not_added)
            )
    except IntegrityError as error:
        # An act that does not wait for chunks applied side by side, or another worker's chunk.
        raise TransientError("another act on the list came between") from error


def _tag_ids(resources: Resources, import_id: int, chunk: PreparedChunk) -> TagIds:
    with resources.unit_of_work() as uow:
        task = uow.session.get_one(MemberImport, import_id)
    return extras.make_tags(resources, task, chunk.rows)


def _require_list(uow: UnitOfWork, task: MemberImport) -> None:
    try:
        lists.get(uow, task.list_id)
    except DomainError as error:
        # A list that was archived meanwhile takes no members. Invalid, not missing: the list
        # existed when the waiting caller named it.
        raise DomainError(Kind.INVALID, error.code, error.message) from None


def _count(
    uow: UnitOfWork, lease: Lease, task: MemberImport, chunk: PreparedChunk, applied: AppliedChunk
) -> None:
    # What the other chunks have counted since; the hold keeps them out now.
    uow.session.refresh(task)
    # The job first, then the import: the order in which a transaction that ends both locks them.
    # If another worker has the job now, this rolls the chunk back.
    done = sum(getattr(task, verdict) for verdict in _ALL_VERDICTS) + len(chunk.rows)
    leases.progress(uow, lease, done=done, total=task.received if task.is_split else None)
    for verdict, rows in applied.counts.items():
        setattr(task, verdict, getattr(task, verdict) + rows)
    task.updated += applied.updated
    task.left_out += applied.left_out
    task.applied += 1
    uow.after_commit(partial(IMPORTED_ROWS.inc, len(chunk.rows)))
