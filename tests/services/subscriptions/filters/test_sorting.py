"""Tests sorted pages of the members who match a filter."""

import base64
import unicodedata
from typing import Any

import pytest

from core.errors import DomainError
from services.paging import PageRequest
from services.subscriptions.filters import member_filter, searching, sorting
from services.subscriptions.filters.sorting import MemberOrder
from tests.support.lists.filter_oracle import PlainMember, matches_filter, names_status
from tests.support.lists.random_list import RandomList

EVERYBODY = {"field": "status", "is": "active"}
VIP = {"field": "tag", "is": "vip"}
# Members without an address are never active in the product.
HAS_ADDRESS = {"field": "email", "exists": True}
REMOVED = {"field": "status", "in": ["removed", "unsubscribed"]}
LAST = "\U0010ffff"
ORDERS = ("joined", "-joined", "email", "-email", "name", "-name")


def sort_members(random_list: RandomList, filter_json: dict[str, Any], sort: str) -> list[int]:
    """Return the ids of the matching members in the order that the product must return."""

    def key(member: PlainMember) -> tuple[Any, int]:
        name = sort.removeprefix("-")
        if name == "joined":
            return member.joined_at, member.id
        if name == "email":
            return (member.email or LAST).encode(), member.id
        folded = unicodedata.normalize("NFKD", member.name or LAST).casefold()
        return folded.encode(), member.id

    matching = [
        member
        for member in random_list.members
        if (member.status == "active" or names_status(filter_json))
        and matches_filter(filter_json, member)
    ]
    return [member.id for member in sorted(matching, key=key, reverse=sort.startswith("-"))]


def read_page(
    random_list: RandomList,
    filter_json: dict[str, Any],
    sort: str,
    *,
    limit: int = 25,
    cursor: str | None = None,
) -> searching.MemberSearchPage | None:
    order = MemberOrder.parse(sort)
    assert order
    with random_list.stack.resources.unit_of_work() as uow:
        criteria = member_filter.read_filter(uow, random_list.load(uow), filter_json)
        request = PageRequest(limit, cursor=cursor)
        return sorting.read_sorted_page(uow, random_list.list_id, criteria, order, request)


def read_all_pages(
    random_list: RandomList, filter_json: dict[str, Any], sort: str
) -> tuple[list[int], list[int | None]]:
    """Return the ids and the totals of all pages."""
    ids: list[int] = []
    totals: list[int | None] = []
    cursor: str | None = None
    while not totals or cursor is not None:
        result = read_page(random_list, filter_json, sort, cursor=cursor)
        assert result
        ids += [row["id"] for row in result.page.rows]
        totals.append(result.total)
        cursor = result.page.next_cursor
    return ids, totals


@pytest.mark.parametrize("sort", ORDERS)
@pytest.mark.parametrize("filter_json", [EVERYBODY, VIP, REMOVED], ids=str)
def test_sorted_pages_show_every_matching_member_once_in_order(
    random_list: RandomList, filter_json: dict[str, Any], sort: str
) -> None:
    ids, totals = read_all_pages(random_list, filter_json, sort)
    assert ids == sort_members(random_list, filter_json, sort)
    assert totals == [len(ids), *[None] * (len(totals) - 1)]


@pytest.mark.parametrize("sort", ["joined", "-joined", "email", "-email"])
@pytest.mark.parametrize(
    "filter_json",
    [HAS_ADDRESS, {"all": [VIP, HAS_ADDRESS]}, {"field": "email", "begins": "ann"}],
    ids=str,
)
def test_long_list_is_sorted_by_scans_of_limited_length(
    random_list: RandomList,
    monkeypatch: pytest.MonkeyPatch,
    filter_json: dict[str, Any],
    sort: str,
) -> None:
    monkeypatch.setattr(searching, "MAX_SHORT_SCAN_MEMBERS", 10)
    monkeypatch.setattr(searching, "MAX_LONG_SCAN_MEMBERS", 20)
    monkeypatch.setattr(sorting, "MAX_SORTED_MEMBERS", 5)
    ids, totals = read_all_pages(random_list, filter_json, sort)
    assert ids == sort_members(random_list, filter_json, sort)
    # The scans are so short that most pages contain fewer than 25 members.
    assert len(totals) > len(ids) / 25 + 1


def test_only_orders_with_an_index_sort_more_members_than_the_maximum(
    random_list: RandomList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "MAX_SHORT_SCAN_MEMBERS", 10)
    monkeypatch.setattr(sorting, "MAX_SORTED_MEMBERS", 20)
    assert read_page(random_list, EVERYBODY, "name") is None
    assert read_page(random_list, REMOVED, "joined") is None
    assert read_page(random_list, REMOVED, "-email") is None
    assert read_page(random_list, HAS_ADDRESS, "-email")
    few = {"field": "email", "is": "bob@example.org"}
    result = read_page(random_list, few, "name")
    assert result
    assert [row["id"] for row in result.page.rows] == sort_members(random_list, few, "name")


def test_cursor_is_valid_only_for_its_own_order(random_list: RandomList) -> None:
    result = read_page(random_list, EVERYBODY, "joined", limit=5)
    assert result
    cursor = result.page.next_cursor
    assert cursor
    assert read_page(random_list, EVERYBODY, "joined", cursor=cursor)
    for sort in {*ORDERS} - {"joined"}:
        with pytest.raises(DomainError, match="next_cursor") as error:
            read_page(random_list, EVERYBODY, sort, cursor=cursor)
        assert error.value.code == "cursor.invalid"


@pytest.mark.parametrize(
    "values",
    [
        '["email", 1]',
        '["email", -1, "a"]',
        '["email", true, "a"]',
        '["email", 99999999999999999999, "a"]',
        '["email", 1, null]',
        '["email", 1, "\\u0000"]',
        '["email", 1, "\\ud800"]',
        '["joined", 1, "2026-01-01"]',
        '["joined", 1, "2026-01-01T00:00:00"]',
        '["joined", 1, 5]',
        "{}",
        "7",
        "",
    ],
)
def test_malformed_cursor_of_a_sorted_page_is_rejected(
    random_list: RandomList, values: str
) -> None:
    cursor = base64.urlsafe_b64encode(values.encode()).decode()
    for sort in ("email", "joined"):
        with pytest.raises(DomainError) as error:
            read_page(random_list, EVERYBODY, sort, cursor=cursor)
        assert error.value.code == "cursor.invalid"


def test_sorting_of_no_members_returns_an_empty_page(random_list: RandomList) -> None:
    contradictory = {"all": [EVERYBODY, {"field": "status", "is": "removed"}]}
    for sort in ORDERS:
        result = read_page(random_list, contradictory, sort)
        assert result
        assert (result.page.rows, result.page.next_cursor, result.total) == ([], None, 0)
