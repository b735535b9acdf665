"""Accepts imports: the bytes are stored first, then one transaction writes the row and the job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from core.errors import DomainError
from core.refusals.mailing import PLAN_REQUIRED
from core.refusals.refusal import Refusal
from core.settings import Settings
from core.settings.plan_quotas import PlanQuota
from models import ImportKind, Job, MemberImport, Plan
from services import removals
from services.access import quotas
from services.access.caller import Caller
from services.jobs import idempotency
from services.jobs.idempotency import AcceptedJob, EqualRequestCommitted, IdempotencyKey
from services.mailing import lists, sealed_files
from services.mailing.imports.import_jobs import ADD_MEMBERS, IMPORT_FILE, IMPORT_SUPPRESSIONS
from services.mailing.sealed_files import IMPORTS, NewFile
from services.people import accounts
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_MEMBERS_PER_REQUEST = 100_000
MAX_IMPORT_FILENAME_CHARACTERS = 255


@dataclass(frozen=True)
class ImportOptions:
    """How the rows of a file are applied.

    Attributes:
        dry_run: judge every row, and change nothing.
        on_existing: ``update`` gives active members the file's name, tier and fields; ``skip``
            only adds the fields and tags that they lack.
        mapping: columns of the file, by name or index, and their roles.
        kind: what the rows are.
        create_fields: make fields of the columns that nothing else is known of.
    """

    dry_run: bool = False
    on_existing: str = "skip"
    mapping: Mapping[str, str] | None = None
    kind: ImportKind = ImportKind.MEMBERS
    create_fields: bool = False

    @property
    def columns(self) -> dict[str, Any]:
        """As a record of an import keeps them."""
        return {**vars(self), "mapping": dict(self.mapping) if self.mapping else None}


def read_mapping(text: str | None, refusal: Refusal) -> dict[str, str] | None:
    """``ImportOptions.mapping`` from JSON; raises ``refusal`` for text that can't be one."""
    if text is None:
        return None
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise refusal() from None
    if not isinstance(parsed, dict) or not all(
        isinstance(each, str) and "\0" not in each for pair in parsed.items() for each in pair
    ):
        raise refusal()
    return parsed


def display_filename(filename: str | None) -> str | None:
    """The file's name as it is stored: bounded, without folders and unprintable characters."""
    name = (filename or "").replace("\\", "/").rpartition("/")[2]
    return "".join(filter(str.isprintable, name))[-MAX_IMPORT_FILENAME_CHARACTERS:] or None


def new_file(resources: Resources) -> NewFile:
    """Where the file of a new import is stored."""
    return sealed_files.new_file(resources, IMPORTS)


def forget_file(resources: Resources, prefix: str) -> None:
    """Have the objects of an import removed that was not accepted."""
    with resources.unit_of_work() as uow:
        removals.forget(uow, f"{prefix}/")


def check_owner(uow: UnitOfWork, caller: Caller, list_id: int, *, dry_run: bool = False) -> None:
    """Raises ``list.not_found``, ``list.not_owner`` and, but for a dry run, ``plan.required``."""
    lists.owned(uow, caller, list_id)
    if not dry_run and accounts.get(uow, caller.user_id).plan != Plan.PAID:
        raise PLAN_REQUIRED()


def check_upload(
    uow: UnitOfWork, settings: Settings, caller: Caller, list_id: int, *, dry_run: bool
) -> None:
    """Refuse before a file is read what would be refused after it.

    The quota of members refuses nothing yet: the opt-outs of the file are to be kept. Raises what
    ``check_owner`` raises, and ``quota.exceeded``.
    """
    check_owner(uow, caller, list_id, dry_run=dry_run)
    for quota in (PlanQuota.UNFINISHED_JOBS, PlanQuota.STORAGE_MB):
        quotas.require(uow, settings, caller.user_id, quota)


def accept_members(
    resources: Resources,
    caller: Caller,
    list_id: int,
    body: bytes,
    *,
    key: IdempotencyKey | None,
    request_id: str | None,
) -> AcceptedJob:
    """Accept the members of one request, whose body has been checked.

    Raises what ``check_owner`` and ``services.jobs.idempotency`` raise, and ``quota.exceeded``.
    """
    with resources.unit_of_work() as uow:
        check_owner(uow, caller, list_id)

    def store() -> Job:
        file = new_file(resources)
        file.writer.write(body)
        file.writer.close()
        task = MemberImport(
            list_id=list_id, user_id=caller.user_id, source="members", size=len(body)
        )
        file.name_in(task)
        try:
            takes = {PlanQuota.STORAGE_MB: len(body)}
            return idempotency.commit(resources, task, ADD_MEMBERS, key, request_id, takes=takes)
        except (EqualRequestCommitted, DomainError):
            forget_file(resources, file.prefix)
            raise

    return idempotency.once(resources, key, store)


def accept_file(
    resources: Resources,
    user_id: int,
    list_id: int,
    *,
    file: NewFile,
    filename: str | None,
    options: ImportOptions,
    request_id: str | None,
    by_operator: bool = False,
) -> AcceptedJob:
    """Accept a file that was written, for a user whose rights were checked.

    Raises ``quota.exceeded`` unless it comes ``by_operator``; the file is forgotten then.
    """
    task = MemberImport(
        list_id=list_id,
        user_id=user_id,
        source="file",
        filename=display_filename(filename),
        size=file.writer.size,
        by_operator=by_operator,
        **options.columns,
    )
    file.name_in(task)
    size, is_of_members = task.size, options.kind is ImportKind.MEMBERS
    takes = {} if by_operator else {PlanQuota.UNFINISHED_JOBS: 1, PlanQuota.STORAGE_MB: size}
    kind = IMPORT_FILE if is_of_members else IMPORT_SUPPRESSIONS

    def store() -> Job:
        try:
            return idempotency.commit(resources, task, kind, None, request_id, takes=takes)
        except DomainError:
            forget_file(resources, file.prefix)
            raise

    return idempotency.once(resources, None, store)
