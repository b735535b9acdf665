import re

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from core.errors import conflict, invalid
from models import MailingList
from storage.unit_of_work import UnitOfWork

_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,79}\Z")
MAX_TITLE_CHARACTERS = 200


def create(uow: UnitOfWork, *, owner_id: int, title: str, slug: str) -> MailingList:
    """A new list; raises ``list.title``, ``list.slug`` or ``list.slug_taken``."""
    if not 1 <= len(title.strip()) <= MAX_TITLE_CHARACTERS:
        raise invalid("list.title", f"A title has 1 to {MAX_TITLE_CHARACTERS} characters.")
    if not _SLUG.match(slug) or slug.isdigit():
        raise invalid(
            "list.slug", "A slug has 1 to 80 of a-z, 0-9 and '-', and is never all digits."
        )
    mailing_list = MailingList(user_id=owner_id, title=title.strip(), slug=slug)
    uow.session.add(mailing_list)
    try:
        uow.session.flush()
    except IntegrityError as error:
        if "uq_lists_slug" not in str(error.orig):
            raise
        raise conflict("list.slug_taken", f"The slug {slug!r} is taken.") from None
    return mailing_list


def find_by_slug(uow: UnitOfWork, slug: str) -> MailingList | None:
    return uow.session.scalar(select(MailingList).where(MailingList.slug == slug))
