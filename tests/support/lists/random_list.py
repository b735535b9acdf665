"""A mailing list with random members, and functions that search the list."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from core import clock
from core.ids import random_hash_id
from devstack.harness.stack import Owner, Stack
from models import (
    Bounce,
    EngagementAnswer,
    MailingList,
    MemberEngagement,
    Subscription,
    SubscriptionStatus,
    User,
)
from services.paging import PageRequest
from services.subscriptions import fields, lists, tags
from services.subscriptions.filters import member_filter, searching
from storage.unit_of_work import UnitOfWork
from tests.support.lists import random_filters
from tests.support.lists.filter_oracle import PlainMember, matches_filter, names_status

MEMBERS = 300
PAGE_ROWS = 25
_IMPORT = """
    INSERT INTO imports (list_id, user_id, source, object_prefix, size)
    SELECT %s, %s, 'file', 'imports/of-filters-' || %s || '-' || n, 1
    FROM generate_series(1, 2) AS n RETURNING id
"""


@dataclass(frozen=True)
class RandomList:
    stack: Stack
    owner: Owner
    list_id: int
    import_ids: list[int]
    members: list[PlainMember]

    def load(self, uow: UnitOfWork) -> MailingList:
        return lists.get_list(uow, self.list_id)


def make_random_list(stack: Stack) -> RandomList:
    """Create a mailing list whose members are random but the same in every test run."""
    owner = stack.create_owner()
    with stack.resources.unit_of_work() as uow:
        slug = random_hash_id()
        list_id = lists.create_list(uow, account_id=owner.account_id, title="A list", slug=slug).id
        field_ids = {
            key: fields.create_field(
                uow,
                owner.account_id,
                type=kind,
                key=key,
                label=key,
                choices=list(random_filters.CHOICES) if kind == "choice" else [],
            ).id
            for key, kind in random_filters.FIELDS.items()
        }
        tag_ids = tags.find_tag_ids(uow, list_id, random_filters.TAGS, create=True)
        lists.get_list(uow, list_id).engagement = "all"
    import_ids = [int(str(row[0])) for row in stack.query(_IMPORT, list_id, owner.user_id, list_id)]
    dice = random.Random(20)
    with stack.resources.unit_of_work() as uow:
        triples = [
            _build_member(dice, list_id, import_ids, field_ids, tag_ids) for _ in range(MEMBERS)
        ]
        states = [dice.choice(random_filters.BOUNCES) for _ in triples]
        for (record, _, _), state in zip(triples, states, strict=True):
            if state == "hard" and record.status == "active":
                # In the product, a hard bounce turns the member's mail off. Turn the mail off here
                # before inserting the row, because a later UPDATE would change ``updated_at``.
                record.email_enabled = False
        for _, user, _ in triples:
            uow.session.add(user)
        uow.session.flush()
        # Flush each subscription separately, so that ids are assigned in the order of creation.
        for record, user, _ in triples:
            record.user_id = user.id
            uow.session.add(record)
            uow.session.flush()
        for (record, _, _), state in zip(triples, states, strict=True):
            uow.session.add_all(_build_bounces(dice, record, state))
        engagement = _add_engagement(uow, dice, [record for record, _, _ in triples])
        members = [
            replace(_describe_member(record, values, field_ids, tag_ids, state), **engaged)
            for (record, _, values), state, engaged in zip(triples, states, engagement, strict=True)
        ]
        # Members keep the id of a tag that has been deleted.
        tags.delete_tag(uow, list_id, tag_ids["old"])
    return RandomList(stack, owner, list_id, import_ids, members)


def _build_member(
    dice: random.Random,
    list_id: int,
    import_ids: list[int],
    field_ids: dict[str, int],
    tag_ids: dict[str, int],
) -> tuple[Subscription, User, dict[str, object]]:
    values = random_filters.random_values(dice)
    name = dice.choice(("ann", "anna", "an_", "n%b", "zoë", "bob"))
    created_at = dice.choice(random_filters.MOMENTS)
    status = dice.choice(random_filters.STATUSES)
    record = Subscription(
        list_id=list_id,
        status=status,
        # Pretend that the person signed up just now, because maintenance ends old sign-ups that
        # weren't confirmed.
        confirmation_asked_at=clock.now() if status == "pending" else None,
        type=dice.choice(random_filters.TIERS),
        email=None if dice.random() < 0.05 else f"{name}@example.{dice.choice(('com', 'org'))}",
        name=dice.choice((None, "", *(random_filters.random_text(dice) for _ in range(4)))),
        source=dice.choice(random_filters.SOURCES),
        import_id=dice.choice((None, *import_ids)),
        email_enabled=dice.random() < 0.8,
        created_at=created_at,
        updated_at=created_at + timedelta(days=dice.randint(0, 2)),
        joined_at=dice.choice((None, *random_filters.MOMENTS)),
        tag_ids=sorted(dice.sample(sorted(tag_ids.values()), dice.choice((0, 0, 1, 2, 3)))),
        fields={str(field_ids[key]): value for key, value in values.items()},
        origin=random_filters.random_origin(dice),
        paid_expiry=dice.choice((None, *random_filters.MOMENTS)),
    )
    return record, User(email=f"{random_hash_id()}@example.com"), values


def _build_bounces(dice: random.Random, record: Subscription, state: str) -> list[Bounce]:
    """Return bounces that cause the bounce state ``state``, and a bounce that has no effect."""
    now = clock.now()
    current_kinds = (False, True) if state == "hard" else (False,)
    past_times = {"lifted_at": now} if dice.random() < 0.5 else {"ended_at": now}
    values: list[tuple[bool, dict[str, datetime]]] = [
        (is_hard, {}) for is_hard in current_kinds if state != "none"
    ] + [(False, past_times)]
    return [
        Bounce(
            list_id=record.list_id,
            address_hmac=record.user_id.to_bytes(32, "big"),
            mailing_id=number,
            user_id=record.user_id,
            is_hard=is_hard,
            mailing_at=now,
            bounced_at=now,
            **times,
        )
        for number, (is_hard, times) in enumerate(values)
    ]


def _add_engagement(
    uow: UnitOfWork, dice: random.Random, records: Sequence[Subscription]
) -> list[dict[str, Any]]:
    """Record answers and engagement, and return the values that filters may find.

    Some members have a row that filters must ignore, because maintenance hasn't deleted it yet.
    """
    described: list[dict[str, Any]] = []
    for record in records:
        choice = dice.choice(random_filters.ENGAGEMENT_CHOICES)
        if choice != "none":
            answer = {
                "is_allowed": choice == "yes",
                "address_hmac": None if choice == "yes" else bytes(32),
            }
            uow.session.add(
                EngagementAnswer(list_id=record.list_id, user_id=record.user_id, **answer)
            )
        row = random_filters.random_engagement(dice)
        has_row = dice.random() < 0.7
        if has_row:
            uow.session.add(MemberEngagement(list_id=record.list_id, user_id=record.user_id, **row))
        is_visible = has_row and choice != "no" and record.status == SubscriptionStatus.ACTIVE
        described.append({"engagement_choice": choice, "engagement": row if is_visible else {}})
    return described


def _describe_member(
    record: Subscription,
    values: dict[str, object],
    field_ids: dict[str, int],
    tag_ids: dict[str, int],
    bounced: str,
) -> PlainMember:
    tag_names = {tag_id: name for name, tag_id in tag_ids.items() if name != "old"}
    columns = ("id", "status", "type", "email", "name", "source", "import_id", "email_enabled")
    moments = ("paid_expiry", "created_at", "updated_at")
    return PlainMember(
        **{name: getattr(record, name) for name in (*columns, *moments)},
        bounced=bounced,
        joined_at=record.joined_at or record.created_at,
        tags=frozenset(tag_names[each] for each in record.tag_ids if each in tag_names),
        fields=values,
        origin=record.origin or {},
    )


def list_matching_ids(
    random_list: RandomList, filter_json: dict[str, Any], status: str | None = None
) -> list[int]:
    """Return the ids of the members that match a filter, newest first."""
    statuses = {status} if status else None
    if statuses is None and not names_status(filter_json):
        statuses = {"active"}
    ids = [
        member.id
        for member in random_list.members
        if (statuses is None or member.status in statuses) and matches_filter(filter_json, member)
    ]
    return sorted(ids, reverse=True)


def search_all_pages(
    random_list: RandomList, filter_json: dict[str, Any], status: SubscriptionStatus | None
) -> tuple[list[int], list[int | None]]:
    """Search a list with a filter, and return the ids and totals of all result pages."""
    ids: list[int] = []
    totals: list[int | None] = []
    cursor: str | None = None
    while not totals or cursor is not None:
        with random_list.stack.resources.unit_of_work() as uow:
            mailing_list = random_list.load(uow)
            criteria = member_filter.read_filter(uow, mailing_list, filter_json)
            request = PageRequest(PAGE_ROWS, cursor=cursor)
            page = searching.search_members(uow, mailing_list.id, criteria, request, status)
        assert len(page.page.rows) <= PAGE_ROWS
        ids += [row["id"] for row in page.page.rows]
        totals.append(page.total)
        cursor = page.page.next_cursor
        assert len(totals) <= len(random_list.members) + 1
    return ids, totals
