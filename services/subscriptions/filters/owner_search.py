"""Finds an owner's lists and members by text, across all lists of the owner.

A search for members runs up to three queries, and stops as soon as it has found enough people:

- The address query reads an index, and finds addresses that begin with the text.
- The scan checks the newest members, which is fast if many members match.
- The index search uses the trigram index, which is fast if few members match. For a text that isn't
  in the index, a longer scan replaces it.

The index contains only letters and digits. In a database with the locale C, it contains only ASCII
letters and digits. Scans check a limited number of members, and the index search has a time limit.
A search is therefore fast even if the owner has millions of members.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    FromClause,
    Select,
    Subquery,
    and_,
    func,
    literal_column,
    or_,
    select,
    true,
)

from core.ids import AccountId, PersonId
from core.languages.shown_lines import strip_invisible
from models import MailingList, Subscription, SubscriptionStatus, User
from services.access.caller import Caller
from services.subscriptions.filters.conditions import (
    MIN_INDEXED_CHARACTERS,
    Comparison,
    Condition,
    Members,
)
from services.subscriptions.filters.names import COMMON_NAMES, Operator
from services.subscriptions.filters.searching import MAX_SHORT_SCAN_MEMBERS, execute_in_time
from storage.unit_of_work import UnitOfWork

MIN_SEARCH_CHARACTERS = 2
MAX_SEARCH_CHARACTERS = 200
MAX_RESULTS_PER_KIND = 10
# A result shows at most this number of lists per member.
MAX_LISTS_PER_MEMBER = 10
# The maximum number of members that a scan checks if the trigram index can't find the text.
_MAX_LONG_SCAN_MEMBERS = 100_000
_MAX_INDEX_SEARCH_SECONDS = 1
# The search reads one more person than it returns, to find out whether there are more matches.
_MAX_READ = MAX_RESULTS_PER_KIND + 1
_NAMES = {each.name: each for each in COMMON_NAMES}
_TABLE = Subscription.__table__
_record = _TABLE.c
_IS_ACTIVE = _record.status == SubscriptionStatus.ACTIVE.value


@dataclass(frozen=True)
class ListTitle:
    id: int
    title: str


@dataclass(frozen=True)
class MatchedMember:
    """A person, whose ``name`` or ``email`` contains the text. Both are from the first list."""

    user_id: PersonId
    email: str
    name: str | None
    lists: Sequence[ListTitle]
    has_more_lists: bool


@dataclass(frozen=True)
class SearchResult:
    """The lists and members, each at most ``MAX_RESULTS_PER_KIND``.

    An incomplete search has checked only the newest members, and addresses that begin with the
    text.
    """

    lists: Sequence[MailingList] = ()
    members: Sequence[MatchedMember] = ()
    has_more_members: bool = False
    is_complete: bool = True


def search_lists_and_members(uow: UnitOfWork, caller: Caller, query: str) -> SearchResult:
    """Find unarchived lists by title or slug, and active members by parts of name or address."""
    search_text = unicodedata.normalize("NFC", strip_invisible(query))
    if not MIN_SEARCH_CHARACTERS <= len(search_text) <= MAX_SEARCH_CHARACTERS:
        return SearchResult()
    matching_lists = _find_lists(uow, caller.account_id, search_text)
    search = _MemberSearch(uow, caller.account_id, search_text)
    is_complete = search.run()
    subscription_ids = list(search.people.values())
    return SearchResult(
        matching_lists,
        _read_members(uow, caller.account_id, subscription_ids[:MAX_RESULTS_PER_KIND]),
        has_more_members=len(subscription_ids) > MAX_RESULTS_PER_KIND,
        is_complete=is_complete,
    )


def _find_lists(uow: UnitOfWork, account_id: AccountId, search_text: str) -> Sequence[MailingList]:
    escaped = re.sub(r"([\\%_])", r"\\\1", search_text.lower())
    pattern = f"%{escaped}%"
    query = (
        select(MailingList)
        .where(
            MailingList.user_id == account_id,
            MailingList.archived_at.is_(None),
            or_(func.lower(MailingList.title).like(pattern), MailingList.slug.like(pattern)),
        )
        .order_by(MailingList.created_at.desc(), MailingList.id.desc())
        .limit(MAX_RESULTS_PER_KIND)
    )
    return uow.session.scalars(query).all()


@dataclass(frozen=True)
class _MemberSearch:
    """A search. ``people`` maps user ids to subscription ids, in the order of the results."""

    uow: UnitOfWork
    owner_id: AccountId
    search_text: str
    people: dict[int, int] = field(default_factory=dict)

    def run(self) -> bool:
        """Find people, and return whether the search is complete.

        A search is complete if it has checked all members, has found more people than it returns,
        or has found a person whose whole address is the text.
        """
        return (
            self._find_addresses()
            or self._scan_newest(MAX_SHORT_SCAN_MEMBERS)
            or (
                self._search_index()
                if self._is_indexed()
                else self._scan_newest(_MAX_LONG_SCAN_MEMBERS)
            )
        )

    def _find_addresses(self) -> bool:
        own_lists = _select_lists(self.owner_id)
        begins = self._compare("email", Operator.BEGINS, _TABLE)
        on_list = (
            select(_record.user_id, _record.id, _record.email)
            .where(_record.list_id == own_lists.c.id, _IS_ACTIVE, begins)
            .limit(_MAX_READ)
            .lateral()
        )
        address = func.min(on_list.c.email)
        query = (
            select(on_list.c.user_id, func.max(on_list.c.id), address)
            .select_from(own_lists.join(on_list, true()))
            .group_by(on_list.c.user_id)
            .order_by(address)
            .limit(_MAX_READ)
        )
        rows = self.uow.session.execute(query).all()
        is_full = self._add_people(row[:2] for row in rows)
        # End the search if the text is a person's whole address, because the index search is slow
        # for a long text.
        return is_full or any(row[2] == self.search_text.lower() for row in rows)

    def _scan_newest(self, max_members: int) -> bool:
        own_lists = _select_lists(self.owner_id)
        on_list = (
            select(_record.id, _record.user_id, _record.name, _record.email)
            .where(_record.list_id == own_lists.c.id, _IS_ACTIVE)
            .order_by(_record.list_id.desc(), _record.id.desc())
            .limit(max_members)
            .lateral()
        )
        newest = select(*on_list.c).select_from(own_lists.join(on_list, true()))
        scanned = newest.limit(max_members).subquery()
        matching = select(scanned.c.user_id, scanned.c.id).where(self._contains_text(scanned))
        if self._add_people(self.uow.session.execute(_group_by_person(matching))):
            return True
        last_scanned = select(scanned.c.id).offset(max_members - 1).limit(1)
        return self.uow.session.scalar(last_scanned) is None

    def _is_indexed(self) -> bool:
        if len(self.search_text) < MIN_INDEXED_CHARACTERS:
            return False
        return bool(self.uow.session.scalar(select(func.show_trgm(self.search_text))))

    def _search_index(self) -> bool:
        # Pass the ids of the lists as values, so that Postgres can estimate the size of each list.
        list_ids = self.uow.session.scalars(select(_select_lists(self.owner_id).c.id)).all()
        # OFFSET 0 makes Postgres find all matching members with an index and group them afterwards,
        # instead of checking every member of the lists.
        matching = (
            select(_record.user_id, _record.id)
            .where(_record.list_id.in_(list_ids), _IS_ACTIVE, self._contains_text(_TABLE))
            .offset(literal_column("0"))
        )
        rows = execute_in_time(self.uow, _group_by_person(matching), _MAX_INDEX_SEARCH_SECONDS)
        self._add_people(rows or ())
        return rows is not None

    def _add_people(self, rows: Iterable[Any]) -> bool:
        for user_id, subscription_id in rows:
            self.people.setdefault(user_id, subscription_id)
        return len(self.people) > MAX_RESULTS_PER_KIND

    def _contains_text(self, rows: FromClause) -> Condition:
        names = ("email", "name")
        return or_(*(self._compare(name, Operator.CONTAINS, rows) for name in names))

    def _compare(self, name: str, operator: Operator, rows: FromClause) -> Condition:
        comparison = Comparison(_NAMES[name], operator, (self.search_text,))
        return comparison.build_condition(Members(rows))


def _select_lists(account_id: AccountId) -> Subquery:
    return (
        select(MailingList.id)
        .where(MailingList.user_id == account_id, MailingList.archived_at.is_(None))
        .order_by(MailingList.created_at.desc(), MailingList.id.desc())
        .subquery()
    )


def _group_by_person(members: Select[Any]) -> Select[Any]:
    rows = members.subquery()
    newest_id = func.max(rows.c.id)
    return (
        select(rows.c.user_id, newest_id)
        .group_by(rows.c.user_id)
        .order_by(newest_id.desc())
        .limit(_MAX_READ)
    )


def _read_members(
    uow: UnitOfWork, account_id: AccountId, subscription_ids: Sequence[int]
) -> list[MatchedMember]:
    """Keep the order, but omit erased people, whose data remains until the erasure job ends."""
    matching = (
        select(_record.id, _record.user_id)
        .join(User, and_(User.id == _record.user_id, User.erased_at.is_(None)))
        .where(_record.id.in_(subscription_ids))
        .subquery()
    )
    # Read one more list than the search returns, to find out whether the person has more lists.
    on_list = (
        select(
            *_record["id", "email", "name"],
            MailingList.id.label("list_id"),
            MailingList.title.label("list_title"),
        )
        .join(MailingList, MailingList.id == _record.list_id)
        .where(
            _record.user_id == matching.c.user_id,
            MailingList.user_id == account_id,
            MailingList.archived_at.is_(None),
            _IS_ACTIVE,
        )
        # Begin with the subscription that matches, and continue with the newest.
        .order_by(_record.id != matching.c.id, _record.id.desc())
        .limit(MAX_LISTS_PER_MEMBER + 1)
        .lateral()
    )
    query = (
        select(*matching.c, *on_list.c["email", "name", "list_id", "list_title"])
        .select_from(matching.join(on_list, true()))
        .order_by(on_list.c.id != matching.c.id, on_list.c.id.desc())
    )
    rows_by_id = defaultdict(list)
    for row in uow.session.execute(query):
        rows_by_id[row.id].append(row)
    return [_build_member(rows_by_id[each]) for each in subscription_ids if each in rows_by_id]


def _build_member(rows: Sequence[Any]) -> MatchedMember:
    own_lists = [ListTitle(row.list_id, row.list_title) for row in rows]
    return MatchedMember(
        user_id=rows[0].user_id,
        email=rows[0].email,
        name=rows[0].name,
        lists=own_lists[:MAX_LISTS_PER_MEMBER],
        has_more_lists=len(own_lists) > MAX_LISTS_PER_MEMBER,
    )
