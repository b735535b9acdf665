"""Mails that tell owners of the end of an import of theirs."""

from datetime import timedelta

from sqlalchemy import func, select

from models import AccountMail, MailingList, MemberImport, User
from services.people import account_mails
from services.people.account_mails import MailKind
from storage.unit_of_work import UnitOfWork

NOTICE_WINDOW = timedelta(hours=1)
# A program may import all day; its owner gets no more mails than they read.
MAX_NOTICES_PER_WINDOW = 20
MAX_TITLE_CHARACTERS = 60
_UNNAMED = "a file"


def tell_owner(uow: UnitOfWork, task: MemberImport) -> None:
    """Mail the owner how the import ended, unless they want no such mails.

    Of files alone: a program waits for members of a request, and the operator sees what a command
    did. Call it once the import has its status and its counts.
    """
    is_told = task.source == "file" and not (task.dry_run or task.by_operator)
    if not is_told or task.status == "cancelled":
        return
    owner = uow.session.get_one(User, task.user_id)
    if not owner.import_mails or owner.erased_at is not None:
        return
    lately = select(func.count()).where(
        AccountMail.email == owner.email,
        AccountMail.kind == MailKind.IMPORT_ENDED,
        AccountMail.created_at > func.now() - NOTICE_WINDOW,
    )
    if (uow.session.scalar(lately) or 0) >= MAX_NOTICES_PER_WINDOW:
        return
    account_mails.enqueue_mail(
        uow,
        MailKind.IMPORT_ENDED,
        owner.email,
        user_id=owner.id,
        detail=_told(uow, task),
        request_id=None,
    )


def _told(uow: UnitOfWork, task: MemberImport) -> str:
    title = uow.session.get_one(MailingList, task.list_id).title
    file, into = _short(task.filename or _UNNAMED), _short(title)
    sentences = [f"The import of {file} into {into} has ended."]
    if task.error is not None:
        sentences = [f"The import of {file} into {into} failed: {task.error['message']}"]
    sentences.append(
        f"Of {task.received:,} rows {task.added:,} were added, {task.already:,} were members "
        f"already ({task.updated:,} of them got something new), {task.opted_out:,} said no, "
        f"{task.invalid:,} are invalid and {task.duplicate:,} came twice."
    )
    if task.denied:
        sentences.append(f"{task.denied:,} are kept out by a deny list.")
    if task.over_quota:
        sentences.append(f"{task.over_quota:,} found no room in your plan.")
    if task.left_out:
        sentences.append(f"{task.left_out:,} values did not fit their fields and were left out.")
    return " ".join(sentences)


def _short(text: str) -> str:
    cut = text if len(text) <= MAX_TITLE_CHARACTERS else text[: MAX_TITLE_CHARACTERS - 1] + "…"
    return f"“{cut}”"
