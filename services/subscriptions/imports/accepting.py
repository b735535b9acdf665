"""Accepts imports, and enqueues a job for each import."""

from collections.abc import Mapping
from typing import Any

from core.errors import DomainError
from core.errors.mailing import PLAN_REQUIRED
from core.ids import AccountId
from core.settings.notations import PlanQuota
from core.upload_limits import MAX_MEMBERS_PER_REQUEST
from models import Job, MemberImport, Plan
from services import removals
from services.access import quotas
from services.access.caller import Caller
from services.accounts import accounts
from services.jobs import idempotency
from services.jobs.idempotency import AcceptedJob, IdempotencyKey
from services.jobs.kinds import JobKind
from services.jobs.outbox import enqueue_job
from services.subscriptions import bulk_files, lists
from services.subscriptions.bulk_files import IMPORTS, NewFile
from services.subscriptions.imports.import_job import ADD_MEMBERS, ADD_MEMBERS_WITH_VALUES
from services.subscriptions.imports.import_options import ImportOptions
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_IMPORT_FILENAME_CHARACTERS = 255


def check_upload(uow: UnitOfWork, caller: Caller, list_id: int, *, dry_run: bool) -> None:
    """Check before the upload of a file whether the import would be refused.

    The member quota isn't checked, because opt-outs in the file must be stored even if no member
    can be added.
    """
    check_owner(uow, caller, list_id, dry_run=dry_run)
    for quota in (PlanQuota.UNFINISHED_JOBS, PlanQuota.STORAGE_MB):
        quotas.require_quota(uow, caller.account_id, quota)


def check_owner(uow: UnitOfWork, caller: Caller, list_id: int, *, dry_run: bool = False) -> None:
    """Check that the user may import members into the list. Raises ``plan.required`` if the owner
    has no paid plan, unless the import is a dry run.
    """
    lists.get_own_list(uow, caller, list_id)
    if not dry_run and accounts.get_account(uow, caller.account_id).plan != Plan.PAID:
        raise PLAN_REQUIRED()


def find_max_rows(resources: Resources, caller: Caller, list_id: int) -> int:
    """Return the maximum number of members in a request, before the request's body is read."""
    with resources.unit_of_work() as uow:
        check_owner(uow, caller, list_id)
    # Only the paid plan may add members.
    max_members = quotas.plan_limit(resources.settings, Plan.PAID, PlanQuota.MEMBERS)
    if max_members is None:
        return MAX_MEMBERS_PER_REQUEST
    return min(max_members, MAX_MEMBERS_PER_REQUEST)


def create_file(resources: Resources) -> NewFile:
    return bulk_files.create_file(resources, IMPORTS)


def discard_file(resources: Resources, prefix: str) -> None:
    with resources.unit_of_work() as uow:
        removals.forget_objects(uow, f"{prefix}/")


def accept_members(
    resources: Resources,
    caller: Caller,
    list_id: int,
    body: bytes,
    *,
    key: IdempotencyKey | None,
    has_values: bool = False,
) -> AcceptedJob:
    """Store an import of the members in a request body, and enqueue its job.

    The caller must have validated ``body``, and called ``find_max_rows``.

    ``has_values``: whether a row has one of the values in ``request_values.VALUE_NAMES``.
    """
    earlier = idempotency.find_accepted(resources, key)
    if earlier is not None:
        return earlier
    file = create_file(resources)
    file.writer.write(body)
    file.writer.close()
    return _accept(
        resources,
        file,
        {"list_id": list_id, "user_id": caller.account_id, "source": "members", "size": len(body)},
        ADD_MEMBERS_WITH_VALUES if has_values else ADD_MEMBERS,
        usage={PlanQuota.STORAGE_MB: len(body)},
        key=key,
    )


def accept_file(
    resources: Resources,
    account_id: AccountId,
    list_id: int,
    *,
    file: NewFile,
    filename: str | None,
    options: ImportOptions,
    by_operator: bool = False,
) -> AcceptedJob:
    """Store an import of an uploaded file, and enqueue its job.

    The caller must have checked that the user may import into the list. Imports by an operator are
    not subject to quotas.
    """
    size = file.writer.size
    values = {
        "list_id": list_id,
        "user_id": account_id,
        "source": "file",
        "filename": tidy_filename(filename),
        "size": size,
        "by_operator": by_operator,
        **options.stored_values,
    }
    usage = {} if by_operator else {PlanQuota.UNFINISHED_JOBS: 1, PlanQuota.STORAGE_MB: size}
    return _accept(resources, file, values, options.job_kind, usage=usage)


def _accept(
    resources: Resources,
    file: NewFile,
    values: Mapping[str, Any],
    kind: JobKind,
    *,
    usage: Mapping[PlanQuota, int],
    key: IdempotencyKey | None = None,
) -> AcceptedJob:
    def store_import(uow: UnitOfWork) -> Job:
        for quota, more in usage.items():
            quotas.require_quota(uow, values["user_id"], quota, more=more)
        task = MemberImport(**values)
        file.assign_to(task)
        uow.session.add(task)
        uow.session.flush()
        return enqueue_job(uow, kind, account_id=task.user_id, subject_id=task.id)

    try:
        accepted = idempotency.accept_once(resources, key, store_import)
    except DomainError:
        discard_file(resources, file.prefix)
        raise
    if accepted.replayed:
        discard_file(resources, file.prefix)
    return accepted


def tidy_filename(filename: str | None) -> str | None:
    """Return the last part of a path, shortened and without unprintable characters."""
    name = (filename or "").replace("\\", "/").rpartition("/")[2]
    return "".join(filter(str.isprintable, name))[-MAX_IMPORT_FILENAME_CHARACTERS:] or None
