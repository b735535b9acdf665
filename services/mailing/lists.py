"""Mailing lists: their rules, and who may find and change one."""

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError

from core.ids import MAX_ID, MAX_UINT64
from core.languages.shown_lines import is_shown
from core.refusals import mailing as refusals
from core.settings import Settings, origins
from core.settings.plan_quotas import PlanQuota
from models import MailingList
from services import paging
from services.access import quotas, recent_logins
from services.access.caller import Caller
from services.mailing import looks
from services.mailing.consent import wordings
from services.mailing.subscriptions.locks import waiting_briefly
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,79}\Z")
_NUMBER = re.compile(r"[0-9]{1,20}\Z")
MAX_LIST_TITLE_CHARACTERS = 200
MAX_IMAGE_URL_CHARACTERS = 2048
MAX_REDIRECT_ORIGINS = 10
_IMAGES = ("avatar_image_url", "favicon_image_url")
# No column: each version of it is a row.
_WORDING = "consent_wording"
_CHALLENGE = ("challenge_enabled", "challenge_provider")


def create_own(
    uow: UnitOfWork,
    settings: Settings,
    caller: Caller,
    *,
    title: str,
    slug: str,
    fields: Mapping[str, Any],
    providers: Collection[str],
) -> MailingList:
    """Make a list of the caller; raises ``quota.exceeded``, and what ``create`` raises."""
    # A person who owns a list is not erased, and one who is erased gets none.
    recent_logins.lock_person(uow, caller.user_id)
    quotas.require(uow, settings, caller.user_id, PlanQuota.LISTS)
    return create(
        uow, owner_id=caller.user_id, title=title, slug=slug, fields=fields, providers=providers
    )


def create(
    uow: UnitOfWork,
    *,
    owner_id: int,
    title: str,
    slug: str,
    fields: Mapping[str, Any] | None = None,
    providers: Collection[str] = (),
) -> MailingList:
    """Make a list; raises what ``change`` raises.

    Args:
        fields: other columns that an owner sets.
        providers: the challenge providers that are set up in this deployment.
    """
    mailing_list = MailingList(user_id=owner_id)
    uow.session.add(mailing_list)
    change(uow, mailing_list, {**(fields or {}), "title": title, "slug": slug}, providers)
    return mailing_list


def change(
    uow: UnitOfWork,
    mailing_list: MailingList,
    fields: Mapping[str, Any],
    providers: Collection[str],
) -> None:
    """Set the named columns.

    Raises ``list.title``, ``list.slug``, ``list.slug_taken``, ``list.image_url``,
    ``list.challenge_provider``, ``list.redirect_origins``, ``list.consent_wordings``,
    ``list.colour``, ``list.logo``, ``list.sender_name``, ``list.words``, ``list.busy``.
    """
    columns = {name: value for name, value in fields.items() if name != _WORDING}
    _set(mailing_list, columns, providers)
    with uow.session.no_autoflush:
        looks.settle(uow, mailing_list, columns)
    _flush(uow, mailing_list.slug)
    if _WORDING in fields:
        with waiting_briefly(uow):
            wordings.choose(uow, mailing_list, fields[_WORDING])


def archive(uow: UnitOfWork, mailing_list: MailingList) -> int:
    """Archive the list: it takes no new members and sends no mail, and members can still leave."""
    statement = (
        update(MailingList)
        .where(MailingList.id == mailing_list.id, MailingList.archived_at.is_(None))
        .values(archived_at=func.now())
        .returning(MailingList.id)
    )
    return len(uow.session.execute(statement).all())


def find_by_slug(uow: UnitOfWork, slug: str) -> MailingList | None:
    return uow.session.scalar(select(MailingList).where(MailingList.slug == slug))


def get(uow: UnitOfWork, list_id: int, *, archived: bool = False) -> MailingList:
    """Raises ``list.not_found``, also for an archived list unless ``archived`` is set."""
    return _shown(uow.session.get(MailingList, list_id), archived=archived)


def _shown(found: MailingList | None, *, archived: bool) -> MailingList:
    if found is None or (found.archived_at is not None and not archived):
        raise refusals.LIST_NOT_FOUND()
    return found


def id_of(name: str) -> int | None:
    """The id that a name is, or ``None`` if it is a slug; raises ``list.name_invalid``."""
    if _NUMBER.match(name) and int(name) <= MAX_UINT64:
        # 0 is no id.
        return int(name) if int(name) <= MAX_ID else 0
    if not _SLUG.match(name) or name.isdigit():
        raise refusals.LIST_NAME_INVALID()
    return None


def get_named(uow: UnitOfWork, name: str, *, archived: bool = False) -> MailingList:
    """The list with this id or slug; raises ``list.not_found``, ``list.name_invalid``."""
    list_id = id_of(name)
    if list_id is not None:
        return get(uow, list_id, archived=archived)
    return _shown(find_by_slug(uow, name), archived=archived)


def owned(uow: UnitOfWork, caller: Caller, list_id: int) -> MailingList:
    """The caller's own list; raises ``list.not_found``, ``list.not_owner``."""
    found = get(uow, list_id)
    require_owner(found.user_id, caller)
    return found


def require_owner(owner_id: int | None, caller: Caller) -> None:
    """For the owner of a list, ``None`` where there is no such list.

    Raises ``list.not_found``, ``list.not_owner``.
    """
    if owner_id is None:
        raise refusals.LIST_NOT_FOUND()
    if owner_id != caller.user_id:
        raise refusals.LIST_NOT_OWNER()


def list_of(uow: UnitOfWork, user_id: int, wanted: PageRequest) -> PageOfRows[MailingList]:
    """The user's lists that are not archived, newest first. Raises ``cursor.invalid``."""
    open_ones = select(MailingList).where(
        MailingList.user_id == user_id, MailingList.archived_at.is_(None)
    )
    query = paging.by_moment(open_ones, MailingList.created_at, MailingList.id, wanted)
    found = uow.session.scalars(query).all()
    return paging.cut(
        found, wanted.limit, lambda each: paging.moment_cursor(each.created_at, each.id)
    )


def list_all(
    uow: UnitOfWork, *, owner_id: int | None, archived: bool, limit: int
) -> list[MailingList]:
    """The lists of all users or of one, archived or not, newest first, for the operator."""
    is_archived = MailingList.archived_at.is_not(None)
    query = select(MailingList).where(is_archived if archived else ~is_archived)
    if owner_id is not None:
        query = query.where(MailingList.user_id == owner_id)
    newest_first = query.order_by(MailingList.created_at.desc(), MailingList.id.desc())
    return list(uow.session.scalars(newest_first.limit(limit)))


def titles_of(uow: UnitOfWork, list_ids: Collection[int]) -> dict[int, str]:
    """The titles of these lists, archived ones among them, for one to whom they are no secret."""
    query = select(MailingList.id, MailingList.title).where(MailingList.id.in_(set(list_ids)))
    return {row.id: row.title for row in uow.session.execute(query)}


def _set(mailing_list: MailingList, fields: Mapping[str, Any], providers: Collection[str]) -> None:
    for name, value in fields.items():
        setattr(mailing_list, name, value)
    mailing_list.title = _read_title(mailing_list.title)
    if not _SLUG.match(mailing_list.slug) or mailing_list.slug.isdigit():
        raise refusals.LIST_SLUG()
    mailing_list.redirect_origins = _origins(mailing_list.redirect_origins or [])
    for name in _IMAGES:
        url = getattr(mailing_list, name)
        if url is None:
            continue
        try:
            parts = urlsplit(url)
            is_absolute = parts.scheme in {"http", "https"} and bool(parts.hostname)
        except ValueError:
            is_absolute = False
        is_one_word = url.isprintable() and " " not in url
        if not is_absolute or not is_one_word or len(url) > MAX_IMAGE_URL_CHARACTERS:
            raise refusals.LIST_IMAGE_URL(name=name, most=MAX_IMAGE_URL_CHARACTERS)
    # A provider that is no longer set up must not stop the owner from changing the title.
    is_checked = mailing_list.challenge_enabled and not fields.keys().isdisjoint(_CHALLENGE)
    if is_checked and mailing_list.challenge_provider not in providers:
        raise refusals.LIST_CHALLENGE_PROVIDER(able=", ".join(sorted(providers)) or "none")


def _read_title(text: str) -> str:
    title = text.strip()
    # The title goes into mails; with a second line an owner could write text to any stranger.
    if len(title) > MAX_LIST_TITLE_CHARACTERS or not is_shown(title):
        raise refusals.LIST_TITLE(most=MAX_LIST_TITLE_CHARACTERS)
    return title


def _origins(texts: Collection[str]) -> list[str]:
    """The origins in their one spelling, each once."""
    known = [origins.read(text) for text in texts]
    found = list(dict.fromkeys(each for each in known if each is not None))
    if None in known or len(found) > MAX_REDIRECT_ORIGINS:
        raise refusals.LIST_REDIRECT_ORIGINS(most=MAX_REDIRECT_ORIGINS)
    return found


def _flush(uow: UnitOfWork, slug: str) -> None:
    try:
        # A new slug waits for the rows that an import is writing about the list.
        with waiting_briefly(uow):
            uow.session.flush()
    except IntegrityError as error:
        if "uq_lists_slug" not in str(error.orig):
            raise
        raise refusals.LIST_SLUG_TAKEN(slug=slug) from None
