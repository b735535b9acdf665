"""Creates, finds, changes and archives mailing lists."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Row, select

from core.errors import mailing as errors
from core.ids import MAX_ID, MAX_UINT64, AccountId
from core.languages.shown_lines import is_shown
from core.settings import Settings, origins
from core.settings.notations import PlanQuota
from models import MailingList
from services import paging
from services.access import quotas, sessions
from services.access.caller import Caller
from services.paging import UNPAGED, PageOfRows, PageRequest
from services.subscriptions import branding, redirects, sign_up_fields, text_reviews
from services.subscriptions.consent import wordings
from services.subscriptions.members.locks import limit_lock_waits
from storage.expected_errors import raise_if_taken
from storage.unit_of_work import UnitOfWork, record_moment_once

_MAX_SLUGS_TO_TRY = 1_000
_SLUG_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,79}\Z")
_ID_PATTERN = re.compile(r"[0-9]{1,20}\Z")
MAX_LIST_TITLE_CHARACTERS = 200
MAX_IMAGE_URL_CHARACTERS = 2048
MAX_REDIRECT_ORIGINS = 10
_IMAGE_URL_COLUMNS = ("avatar_image_url", "favicon_image_url")
# The column for the consent wording isn't in the table ``lists``, because each version of a wording
# is a row in ``consent_wordings``.
_CONSENT_WORDING = "consent_wording"
_CHALLENGE_COLUMNS = ("challenge_enabled", "challenge_provider")
_REDIRECT_COLUMNS = ("redirect_origins", "confirmed_redirect")


def create_own_list(
    uow: UnitOfWork,
    caller: Caller,
    *,
    title: str,
    slug: str,
    fields: Mapping[str, Any],
    providers: Collection[str],
) -> MailingList:
    values = _validate_values(uow.settings, {**fields, "title": title, "slug": slug})
    # Lock the caller's account against a simultaneous erasure, because an erased person must not
    # own a list.
    sessions.lock_account(uow, caller.account_id)
    quotas.require_quota(uow, caller.account_id, PlanQuota.LISTS)
    return _create(uow, caller.account_id, values, providers)


def create_list(
    uow: UnitOfWork,
    *,
    account_id: AccountId,
    title: str,
    slug: str,
    fields: Mapping[str, Any] | None = None,
    providers: Collection[str] = (),
) -> MailingList:
    """Create a list. The operator has configured the CAPTCHA ``providers``."""
    values = _validate_values(uow.settings, {**(fields or {}), "title": title, "slug": slug})
    return _create(uow, account_id, values, providers)


def _create(
    uow: UnitOfWork, account_id: AccountId, values: Mapping[str, Any], providers: Collection[str]
) -> MailingList:
    mailing_list = MailingList(user_id=account_id)
    uow.session.add(mailing_list)
    _set_values(uow, mailing_list, values, providers)
    return mailing_list


def change_list(
    uow: UnitOfWork,
    mailing_list: MailingList,
    fields: Mapping[str, Any],
    providers: Collection[str],
) -> bool:
    """Change a list, and return whether any value differs from the stored one.

    Unchanged values aren't validated, so that a deleted logo, for example, doesn't prevent a change
    of the title.
    """
    changes = _select_changes(uow, mailing_list, fields)
    if changes:
        _set_values(uow, mailing_list, _validate_values(uow.settings, changes), providers)
    return bool(changes)


def _select_changes(
    uow: UnitOfWork, mailing_list: MailingList, fields: Mapping[str, Any]
) -> dict[str, Any]:
    field_keys = sign_up_fields.read_field_keys(uow, mailing_list)
    other_values = {
        **dict(zip(sign_up_fields.FIELD_KEY_COLUMNS, field_keys, strict=True)),
        _CONSENT_WORDING: wordings.read_current_wordings(uow, [mailing_list]).get(mailing_list.id),
    }
    return {
        name: value
        for name, value in fields.items()
        if value != (other_values[name] if name in other_values else getattr(mailing_list, name))
    }


def _validate_values(settings: Settings, fields: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(fields)
    if "title" in values:
        values["title"] = values["title"].strip()
        if len(values["title"]) > MAX_LIST_TITLE_CHARACTERS:
            raise errors.LIST_TITLE(most=MAX_LIST_TITLE_CHARACTERS)
    result = branding.validate_values(settings, values)
    # Reject a multi-line title, because mails contain the title, and an owner could use it to send
    # a message to strangers.
    if "title" in result and not is_shown(result["title"]):
        raise errors.LIST_TITLE(most=MAX_LIST_TITLE_CHARACTERS)
    return result


def _set_values(
    uow: UnitOfWork,
    mailing_list: MailingList,
    fields: Mapping[str, Any],
    providers: Collection[str],
) -> None:
    old_texts = text_reviews.list_reviewed_texts(mailing_list)
    columns = {
        name: value
        for name, value in fields.items()
        if name not in {_CONSENT_WORDING, *sign_up_fields.FIELD_KEY_COLUMNS}
    }
    with uow.session.no_autoflush:
        columns |= sign_up_fields.find_field_ids(uow, mailing_list, fields)
    _set_columns(uow.settings, mailing_list, columns, providers)
    if "logo_hash_id" in columns:
        with uow.session.no_autoflush:
            branding.require_logo(uow, mailing_list)
    text_reviews.update_suspicion(uow, mailing_list, old_texts)
    slug_taken = errors.LIST_SLUG_TAKEN(slug=mailing_list.slug)
    # Limit how long the transaction waits for locks, because an import may block the change of the
    # slug.
    with raise_if_taken("uq_lists_slug", slug_taken), limit_lock_waits(uow):
        uow.session.flush()
    if _CONSENT_WORDING in fields:
        with limit_lock_waits(uow):
            wordings.choose_wording(uow, mailing_list, fields[_CONSENT_WORDING])


def archive_list(uow: UnitOfWork, mailing_list: MailingList) -> int:
    """Archive a list. It then accepts no members and sends no mail, but members can leave."""
    return record_moment_once(uow, MailingList.archived_at, MailingList.id == mailing_list.id)


def find_free_slug(uow: UnitOfWork, slug: str) -> str:
    """Return the slug, or the slug with the lowest number that no list has, such as ``news-2``."""
    slugs = [slug, *(f"{slug[:75]}-{number}" for number in range(2, _MAX_SLUGS_TO_TRY))]
    taken_slugs = set(
        uow.session.scalars(select(MailingList.slug).where(MailingList.slug.in_(slugs)))
    )
    return next((each for each in slugs if each not in taken_slugs), slug)


def find_by_slug(uow: UnitOfWork, slug: str) -> MailingList | None:
    return uow.session.scalar(select(MailingList).where(MailingList.slug == slug))


def get_list(uow: UnitOfWork, list_id: int, *, archived: bool = False) -> MailingList:
    return _require_found(uow.session.get(MailingList, list_id), archived=archived)


def _require_found(mailing_list: MailingList | None, *, archived: bool) -> MailingList:
    if mailing_list is None or (mailing_list.archived_at is not None and not archived):
        raise errors.LIST_NOT_FOUND()
    return mailing_list


def parse_list_id(name: str) -> int | None:
    """Return ``None`` for a slug. Raises ``list.name_invalid``."""
    if _ID_PATTERN.match(name) and int(name) <= MAX_UINT64:
        # Replace a number that is too large for an id with 0, because no list has the id 0.
        return int(name) if int(name) <= MAX_ID else 0
    if not _SLUG_PATTERN.match(name) or name.isdigit():
        raise errors.LIST_NAME_INVALID()
    return None


def get_named(uow: UnitOfWork, name: str, *, archived: bool = False) -> MailingList:
    list_id = parse_list_id(name)
    if list_id is not None:
        return get_list(uow, list_id, archived=archived)
    return _require_found(find_by_slug(uow, name), archived=archived)


def get_own_list(uow: UnitOfWork, caller: Caller, list_id: int) -> MailingList:
    mailing_list = get_list(uow, list_id)
    require_owner(mailing_list.user_id, caller)
    return mailing_list


def require_owner(account_id: AccountId | None, caller: Caller) -> None:
    if account_id is None:
        raise errors.LIST_NOT_FOUND()
    if account_id != caller.account_id:
        raise errors.LIST_NOT_OWNER()


def list_for_user(
    uow: UnitOfWork, account_id: AccountId, page: PageRequest
) -> PageOfRows[MailingList]:
    open_lists = select(MailingList).where(
        MailingList.user_id == account_id, MailingList.archived_at.is_(None)
    )
    query = paging.select_page_by_moment(open_lists, MailingList.created_at, MailingList.id, page)
    rows = uow.session.scalars(query).all()
    return paging.cut_page(
        rows, page.limit, lambda each: paging.build_moment_cursor(each.created_at, each.id)
    )


def list_choices(
    uow: UnitOfWork, account_id: AccountId, most: int = UNPAGED.limit
) -> Sequence[Row[int, str, str]]:
    query = (
        select(MailingList.id, MailingList.slug, MailingList.title)
        .where(MailingList.user_id == account_id, MailingList.archived_at.is_(None))
        .order_by(MailingList.created_at.desc(), MailingList.id.desc())
        .limit(most)
    )
    return uow.session.execute(query).all()


def list_all(
    uow: UnitOfWork, *, account_id: AccountId | None, archived: bool, limit: int
) -> list[MailingList]:
    """Return archived or unarchived lists of an owner, or of all owners without ``account_id``."""
    is_archived = MailingList.archived_at.is_not(None)
    query = select(MailingList).where(is_archived if archived else ~is_archived)
    if account_id is not None:
        query = query.where(MailingList.user_id == account_id)
    newest_first = query.order_by(MailingList.created_at.desc(), MailingList.id.desc())
    return list(uow.session.scalars(newest_first.limit(limit)))


def read_titles(uow: UnitOfWork, list_ids: Collection[int]) -> dict[int, str]:
    """Include archived lists. The caller checks who may see them."""
    query = select(MailingList.id, MailingList.title).where(MailingList.id.in_(set(list_ids)))
    return {row.id: row.title for row in uow.session.execute(query)}


def _set_columns(
    settings: Settings,
    mailing_list: MailingList,
    fields: Mapping[str, Any],
    providers: Collection[str],
) -> None:
    for name, value in fields.items():
        setattr(mailing_list, name, value)
    if not _SLUG_PATTERN.match(mailing_list.slug) or mailing_list.slug.isdigit():
        raise errors.LIST_SLUG()
    parsed = [origins.normalize_origin(text) for text in (mailing_list.redirect_origins or [])]
    unique = list(dict.fromkeys(each for each in parsed if each is not None))
    if None in parsed or len(unique) > MAX_REDIRECT_ORIGINS:
        raise errors.LIST_REDIRECT_ORIGINS(most=MAX_REDIRECT_ORIGINS)
    mailing_list.redirect_origins = unique
    # Check the redirect only if the request sets its URL or the allowed origins. Otherwise, owners
    # couldn't change other settings after the operator has removed an origin.
    is_redirect_checked = mailing_list.confirmed_redirect is not None and not (
        fields.keys().isdisjoint(_REDIRECT_COLUMNS)
    )
    if is_redirect_checked and not redirects.find_confirmed_redirect(settings, mailing_list):
        raise errors.LIST_CONFIRMED_REDIRECT()
    for name in _IMAGE_URL_COLUMNS:
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
            raise errors.LIST_IMAGE_URL(name=name, most=MAX_IMAGE_URL_CHARACTERS)
    # Check the CAPTCHA provider only if the request changes the CAPTCHA settings, so that owners
    # can change other settings after the operator has removed the provider.
    is_checked = mailing_list.challenge_enabled and not fields.keys().isdisjoint(_CHALLENGE_COLUMNS)
    if is_checked and mailing_list.challenge_provider not in providers:
        raise errors.LIST_CHALLENGE_PROVIDER(able=", ".join(sorted(providers)) or "none")
