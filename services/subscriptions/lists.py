"""Mailing lists: their rules, and who may find and change one."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, NewType
from urllib.parse import urlsplit

from sqlalchemy import ColumnElement, Row, ScalarSelect, func, literal, select, text
from sqlalchemy.dialects.postgresql import insert

from core.errors import mailing as errors
from core.ids import MAX_ID, MAX_UINT64
from core.languages.shown_lines import is_shown
from core.settings import Settings, origins
from core.settings.notations import PlanQuota
from models import ListReport, MailingList, MemberField, OptOutKind, User
from services import paging
from services.access import quotas, sessions
from services.access.caller import Caller
from services.paging import WHOLE, PageOfRows, PageRequest
from services.subscriptions import branding, text_reviews
from services.subscriptions import fields as owner_fields
from services.subscriptions.consent import wordings
from services.subscriptions.members import locks, unsubscribe
from services.subscriptions.members.changes import Actor
from services.subscriptions.members.locks import waiting_briefly
from storage.expected_errors import raise_if_taken
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork, record_moment_once

_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,79}\Z")
_NUMBER = re.compile(r"[0-9]{1,20}\Z")
MAX_LIST_TITLE_CHARACTERS = 200
MAX_IMAGE_URL_CHARACTERS = 2048
MAX_REDIRECT_ORIGINS = 10
_IMAGES = ("avatar_image_url", "favicon_image_url")
# No column: each version of it is a row.
_WORDING = "consent_wording"
_CHALLENGE = ("challenge_enabled", "challenge_provider")
# Keys of fields, which are stored by their ids.
_FIELDS = ("asked_fields", "required_fields")


# The columns of a list, after ``validate_values`` has checked their texts.
CheckedValues = NewType("CheckedValues", dict[str, Any])


def validate_values(settings: Settings, fields: Mapping[str, Any]) -> CheckedValues:
    """Check the texts that an owner set for a list, and return the values normalised.

    Call this before a transaction begins, because searching the texts for links and misleading
    words takes time. Raises ``list.title`` and the errors of ``branding.validate_values``.
    """
    values = dict(fields)
    if "title" in values:
        values["title"] = values["title"].strip()
        if len(values["title"]) > MAX_LIST_TITLE_CHARACTERS:
            raise errors.LIST_TITLE(most=MAX_LIST_TITLE_CHARACTERS)
    result = branding.validate_values(settings, values)
    # Mails contain the title. If a title could have several lines, an owner could mail any text to
    # strangers.
    if "title" in result and not is_shown(result["title"]):
        raise errors.LIST_TITLE(most=MAX_LIST_TITLE_CHARACTERS)
    return CheckedValues(result)


def create_own(
    uow: UnitOfWork,
    caller: Caller,
    *,
    title: str,
    slug: str,
    fields: Mapping[str, Any],
    providers: Collection[str],
) -> MailingList:
    """Create a list of the caller; raises ``quota.exceeded``, and what ``create`` raises."""
    values = validate_values(uow.settings, {**fields, "title": title, "slug": slug})
    # A person who owns a list is not erased, and one who is erased gets none.
    sessions.lock_person(uow, caller.user_id)
    quotas.require(uow, caller.user_id, PlanQuota.LISTS)
    return _create(uow, caller.user_id, values, providers)


def create(
    uow: UnitOfWork,
    *,
    owner_id: int,
    title: str,
    slug: str,
    fields: Mapping[str, Any] | None = None,
    providers: Collection[str] = (),
) -> MailingList:
    """Create a list, with the other columns in ``fields``.

    Raises the errors of ``validate_values`` and ``change``.

    Args:
        providers: the CAPTCHA providers that the operator has configured.
    """
    values = validate_values(uow.settings, {**(fields or {}), "title": title, "slug": slug})
    return _create(uow, owner_id, values, providers)


def _create(
    uow: UnitOfWork, owner_id: int, values: CheckedValues, providers: Collection[str]
) -> MailingList:
    mailing_list = MailingList(user_id=owner_id)
    uow.session.add(mailing_list)
    change(uow, mailing_list, values, providers)
    return mailing_list


def change(
    uow: UnitOfWork,
    mailing_list: MailingList,
    fields: CheckedValues,
    providers: Collection[str],
) -> None:
    """Set columns of a list. Raises ``list.busy``, ``list.logo`` and the errors of the columns."""
    before = text_reviews.reviewed_texts(mailing_list)
    columns = {name: value for name, value in fields.items() if name not in {_WORDING, *_FIELDS}}
    with uow.session.no_autoflush:
        columns |= _field_ids(uow, mailing_list, fields)
    _set(mailing_list, columns, providers)
    if "logo_hash_id" in columns:
        with uow.session.no_autoflush:
            branding.require_logo(uow, mailing_list)
    text_reviews.update_suspicion(uow, mailing_list, before)
    taken = errors.LIST_SLUG_TAKEN(slug=mailing_list.slug)
    # A new slug waits for the rows that an import is writing about the list.
    with raise_if_taken("uq_lists_slug", taken), waiting_briefly(uow):
        uow.session.flush()
    if _WORDING in fields:
        with waiting_briefly(uow):
            wordings.choose_wording(uow, mailing_list, fields[_WORDING])


class SignUpField(NamedTuple):
    """A field that a list's sign-up form asks for."""

    field: MemberField
    is_required: bool


def sign_up_fields(uow: UnitOfWork, mailing_list: MailingList) -> list[SignUpField]:
    """Return the public fields that the list's form asks for, in the order of their making."""
    # A list that is being made has none yet.
    asked, required = mailing_list.asked_field_ids, set(mailing_list.required_field_ids or ())
    public = owner_fields.read_own_fields(uow, mailing_list.user_id).public().by_key.values()
    return [
        SignUpField(each, each.id in required)
        for each in public
        if asked is None or each.id in asked
    ]


def field_keys(uow: UnitOfWork, mailing_list: MailingList) -> tuple[list[str] | None, list[str]]:
    """Return the keys of the fields that the owner chose for the form (``None``: all), and of the
    required ones."""
    has_chosen = mailing_list.asked_field_ids is not None
    if not has_chosen and not mailing_list.required_field_ids:
        return None, []
    found = sign_up_fields(uow, mailing_list)
    required = [each.field.key for each in found if each.is_required]
    return [each.field.key for each in found] if has_chosen else None, required


def _field_ids(
    uow: UnitOfWork, mailing_list: MailingList, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the columns of the keys in ``fields``; raises ``list.fields``."""
    if not fields.keys() & set(_FIELDS):
        return {}
    before = field_keys(uow, mailing_list)
    asked, required = (fields.get(name, keys) for name, keys in zip(_FIELDS, before, strict=True))
    public = owner_fields.read_own_fields(uow, mailing_list.user_id).public().by_key
    for key in [*(asked or ()), *required]:
        if key not in public or (asked is not None and key not in asked):
            raise errors.LIST_FIELDS(key=key[:60])
    return {
        "asked_field_ids": None if asked is None else [public[key].id for key in asked],
        "required_field_ids": [public[key].id for key in required],
    }


def archive(uow: UnitOfWork, mailing_list: MailingList) -> int:
    """Archive the list: it takes no new members and sends no mail, and members can still leave."""
    return record_moment_once(uow, MailingList.archived_at, MailingList.id == mailing_list.id)


def find_by_slug(uow: UnitOfWork, slug: str) -> MailingList | None:
    return uow.session.scalar(select(MailingList).where(MailingList.slug == slug))


def get(uow: UnitOfWork, list_id: int, *, archived: bool = False) -> MailingList:
    """Raises ``list.not_found``, also for an archived list unless ``archived`` is set."""
    return _shown(uow.session.get(MailingList, list_id), archived=archived)


def _shown(found: MailingList | None, *, archived: bool) -> MailingList:
    if found is None or (found.archived_at is not None and not archived):
        raise errors.LIST_NOT_FOUND()
    return found


def id_of(name: str) -> int | None:
    """The id that a name is, or ``None`` if it is a slug; raises ``list.name_invalid``."""
    if _NUMBER.match(name) and int(name) <= MAX_UINT64:
        # 0 is no id.
        return int(name) if int(name) <= MAX_ID else 0
    if not _SLUG.match(name) or name.isdigit():
        raise errors.LIST_NAME_INVALID()
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
        raise errors.LIST_NOT_FOUND()
    if owner_id != caller.user_id:
        raise errors.LIST_NOT_OWNER()


def list_of(uow: UnitOfWork, user_id: int, wanted: PageRequest) -> PageOfRows[MailingList]:
    """The user's lists that are not archived, newest first. Raises ``cursor.invalid``."""
    open_ones = select(MailingList).where(
        MailingList.user_id == user_id, MailingList.archived_at.is_(None)
    )
    query = paging.by_moment(open_ones, MailingList.created_at, MailingList.id, wanted)
    found = uow.session.scalars(query).all()
    return paging.cut(found, wanted.limit, lambda it: paging.moment_cursor(it.created_at, it.id))


def list_choices(
    uow: UnitOfWork, user_id: int, most: int = WHOLE.limit
) -> Sequence[Row[int, str, str]]:
    """Return the ``id``, ``slug`` and ``title`` of the same lists, without their texts."""
    each = MailingList
    named = select(each.id, each.slug, each.title)
    is_open = each.user_id == user_id, each.archived_at.is_(None)
    newest = named.where(*is_open).order_by(each.created_at.desc(), each.id.desc())
    return uow.session.execute(newest.limit(most)).all()


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
    if not _SLUG.match(mailing_list.slug) or mailing_list.slug.isdigit():
        raise errors.LIST_SLUG()
    known = [origins.read(text) for text in (mailing_list.redirect_origins or [])]
    found = list(dict.fromkeys(each for each in known if each is not None))
    if None in known or len(found) > MAX_REDIRECT_ORIGINS:
        raise errors.LIST_REDIRECT_ORIGINS(most=MAX_REDIRECT_ORIGINS)
    mailing_list.redirect_origins = found
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
            raise errors.LIST_IMAGE_URL(name=name, most=MAX_IMAGE_URL_CHARACTERS)
    # A provider that is no longer set up must not stop the owner from changing the title.
    is_checked = mailing_list.challenge_enabled and not fields.keys().isdisjoint(_CHALLENGE)
    if is_checked and mailing_list.challenge_provider not in providers:
        raise errors.LIST_CHALLENGE_PROVIDER(able=", ".join(sorted(providers)) or "none")


MAX_PAGE_REPORTS_OF_NETWORK_A_DAY = 20
MAX_PAGE_REPORTS_OF_LIST = 1_000


def report_list(
    resources: Resources, mailing_list: MailingList, person: User, actor: Actor
) -> None:
    """Record that the person did not ask for the list, and let them leave it for good.

    Reporting again changes nothing. The person leaves first, and can still report if that fails.
    """
    unsubscribe.opt_out(resources, mailing_list, person, OptOutKind.LIST, actor)
    with resources.unit_of_work() as uow:
        if locks.share_person(uow, person.id):
            statement = insert(ListReport).values(list_id=mailing_list.id, user_id=person.id)
            uow.session.execute(statement.on_conflict_do_nothing())


def report_page(uow: UnitOfWork, mailing_list: MailingList, network_digest: bytes) -> None:
    """Record that a stranger, of whom only the network is known, reports the list's page.

    Reporting again changes nothing, nor do more reports than would tell the operator something.
    """
    by_network = ListReport.network_digest == network_digest
    today = ListReport.created_at > func.now() - timedelta(days=1)
    on_list = ListReport.list_id == mailing_list.id, ListReport.network_digest.is_not(None)
    wanted = select(literal(mailing_list.id), literal(network_digest)).where(
        _count_where(by_network, today) < MAX_PAGE_REPORTS_OF_NETWORK_A_DAY,
        _count_where(*on_list) < MAX_PAGE_REPORTS_OF_LIST,
    )
    statement = insert(ListReport).from_select(["list_id", "network_digest"], wanted)
    uow.session.execute(statement.on_conflict_do_nothing())


def _count_where(*conditions: ColumnElement[bool]) -> ScalarSelect[int]:
    return select(func.count()).select_from(ListReport).where(*conditions).scalar_subquery()


def is_reported(uow: UnitOfWork, mailing_list: MailingList, person: User) -> bool:
    """Return whether this person has reported the list."""
    query = select(ListReport.id).where(
        ListReport.list_id == mailing_list.id, ListReport.user_id == person.id
    )
    return uow.session.scalar(query) is not None


@dataclass(frozen=True)
class ReportedList:
    list_id: int
    slug: str
    title: str
    owner_id: int
    owner: str
    reports: int
    by_strangers: int
    reports_in_7_days: int
    last_at: datetime


def reported_lists(uow: UnitOfWork, *, limit: int) -> list[ReportedList]:
    """Lists with reports, those with the most in the last week first."""
    return [ReportedList(*row) for row in uow.session.execute(_REPORTED, {"most": limit})]


# The lists are chosen first, so that no other lists and owners are read.
_REPORTED = text("""
WITH worst AS (
    SELECT list_id, count(*) AS reports, count(network_digest) AS by_strangers,
        count(*) FILTER (WHERE created_at > now() - interval '7 days') AS lately,
        max(created_at) AS last_at
    FROM list_reports GROUP BY list_id ORDER BY lately DESC, reports DESC, list_id LIMIT :most
)
SELECT l.id, l.slug, l.title, u.id, u.email, reports, by_strangers, lately, last_at
FROM worst JOIN lists AS l ON l.id = list_id JOIN users AS u ON u.id = l.user_id
ORDER BY lately DESC, reports DESC, l.id
""")
