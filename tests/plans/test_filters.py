"""Tests that Postgres uses an index to search the members of a large list."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event

from benchmarks.scale.filling import fill
from benchmarks.scale.volume import Volume
from devstack.harness.stack import Stack
from services.paging import PageRequest
from services.subscriptions import lists
from services.subscriptions.filters import member_filter, searching
from services.subscriptions.filters.sorting import MemberOrder, read_sorted_page
from tests.support.lists.engagement import INACTIVE_FOR_90_DAYS
from tests.support.stack.plan_log import pretend_growth, whole_scans

VOLUME = Volume(0.01)
GROWTH_FACTOR = 1_000
Json = dict[str, Any]
Node = dict[str, Any]
# Member filters, each with the name of the index with which Postgres finds the matching members.
INDEXED_FILTERS: list[tuple[Json, str]] = [
    ({"field": "tag", "is": "rare"}, "ix_subscriptions_tag_ids"),
    ({"field": "tag", "in": ["rare", "unheard of"]}, "ix_subscriptions_tag_ids"),
    ({"field": "fields.city", "is": "UTQIAGVIK"}, "ix_subscriptions_fields"),
    ({"field": "email", "is": "ada.adams8@example.com"}, "ix_subscriptions_active_email"),
    ({"field": "email", "begins": "ada.adams8"}, "ix_subscriptions_active_email"),
    ({"field": "email", "contains": "adams8@"}, "ix_subscriptions_words"),
    ({"field": "name", "contains": "rson 7777"}, "ix_subscriptions_words"),
    ({"field": "name", "is": "person 7777"}, "ix_subscriptions_words"),
    ({"field": "joined_at", "before": "2001-01-01"}, "ix_subscriptions_status_created_at"),
    ({"field": "created_at", "after": "2100-01-01"}, "ix_subscriptions_status_created_at"),
    ({"field": "import_id", "is": 9_000_000}, "ix_subscriptions_import_id"),
    *(
        ({"field": "utm_source", **condition}, "ix_subscriptions_origin")
        for condition in ({"is": "utqiagvik"}, {"contains": "qiagv"}, {"begins": "utqi"})
    ),
    ({"field": "utm_campaign", "exists": True}, "ix_subscriptions_origin"),
    # The test requires only an index of `subscriptions`, because Postgres may use any index of
    # `bounces` whose first column is the list's id.
    ({"field": "bounced", "is": "hard"}, "uq_subscriptions_user_id_list_id"),
    ({"field": "bounced", "in": ["soft", "hard"]}, "uq_subscriptions_user_id_list_id"),
    ({"field": "clicks", "at_least": 50}, "uq_subscriptions_user_id_list_id"),
    (INACTIVE_FOR_90_DAYS, "uq_subscriptions_user_id_list_id"),
    ({"field": "engagement_choice", "is_not": "none"}, "uq_subscriptions_user_id_list_id"),
    (
        {"any": [{"field": "bounced", "is": "soft"}, {"field": "tag", "is": "rare"}]},
        "uq_subscriptions_user_id_list_id",
    ),
    (
        {
            "all": [
                {"field": "tag", "is": "rare"},
                {"not": {"field": "name", "contains": "xyz"}},
                {"field": "fields.visits", "at_least": 0},
            ]
        },
        "ix_subscriptions_tag_ids",
    ),
]
# Member filters for which the database has no suitable index, so that Pressroom searches only a
# limited number of the newest members.
UNINDEXED_FILTERS: list[Json] = [
    {"field": "fields.city", "contains": "xyz"},
    {"field": "tag", "is_not": "vip"},
    {"field": "utm_source", "contains": "qi"},
    {"field": "utm_campaign", "exists": False},
    {"field": "email_enabled", "is": False},
    {"field": "bounced", "is": "none"},
    {"field": "opens", "exists": False},
    {"not": {"field": "clicks", "at_least": 1}},
    {"field": "engagement_choice", "is": "none"},
    {"field": "updated_at", "before": "2001-01-01"},
    {"field": "created_at", "anniversary": 0},
    {"field": "joined_at", "anniversary": 0},
    {"field": "paid_expiry", "at_most": {"days_ago": -7}},
    {"field": "status", "in": ["pending", "active", "removed"]},
    {"any": [{"field": "tag", "is": "rare"}, {"field": "name", "exists": False}]},
]


@pytest.fixture(scope="module")
def stack_and_large_tables(make_stack: Callable[[str], Stack]) -> tuple[Stack, set[str]]:
    stack = make_stack("filter-plans")
    fill(stack.owner_url, VOLUME, stack.settings().keyring)
    return stack, pretend_growth(stack, GROWTH_FACTOR)


def explain_search(stack: Stack, filter_json: Json, sort: str = "") -> list[Node]:
    """Search the members of the largest list, and return the query plans of all statements.

    A sorted search returns the first two pages.
    """
    statements: list[str] = []

    def record_statement(_: Any, cursor: Any, text: str, values: Any, *__: Any) -> None:
        statements.append(cursor.mogrify(text, values).decode())

    engine = stack.resources.database.engine
    event.listen(engine, "before_cursor_execute", record_statement)
    try:
        with stack.resources.unit_of_work() as uow:
            mailing_list = lists.find_by_slug(uow, "list-1")
            assert mailing_list is not None
            compiled_filter = member_filter.read_filter(uow, mailing_list, filter_json)
            request = PageRequest(20)
            if order := MemberOrder.parse(sort):
                page = read_sorted_page(uow, mailing_list.id, compiled_filter, order, request)
                assert page
                request = PageRequest(20, cursor=page.page.next_cursor)
                read_sorted_page(uow, mailing_list.id, compiled_filter, order, request)
            else:
                searching.search_members(uow, mailing_list.id, compiled_filter, request)
    finally:
        event.remove(engine, "before_cursor_execute", record_statement)
    queries = [each for each in statements if each.startswith("SELECT")]
    rows = [stack.query(f"EXPLAIN (FORMAT JSON) {each.replace('%', '%%')}") for each in queries]
    return [row[0][0][0]["Plan"] for row in rows]  # type: ignore[index]


def iterate_nodes(plan: Node) -> Iterator[Node]:
    """Yield a node of a query plan and all descendants of the node."""
    yield plan
    for each in plan.get("Plans", []):
        yield from iterate_nodes(each)


@pytest.fixture
def short_scan_of_few_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "MAX_SHORT_SCAN_MEMBERS", 10)


@pytest.mark.usefixtures("short_scan_of_few_members")
@pytest.mark.parametrize(("filter_json", "index"), INDEXED_FILTERS)
def test_selective_member_filter_uses_its_index_on_large_list(
    stack_and_large_tables: tuple[Stack, set[str]], filter_json: Json, index: str
) -> None:
    stack, large = stack_and_large_tables
    plans = explain_search(stack, filter_json)
    used = {node.get("Index Name"): node for plan in plans for node in iterate_nodes(plan)}
    assert index in used
    if index in {"ix_subscriptions_words", "ix_subscriptions_origin"}:
        # The index condition contains the list's id, so that Postgres reads only members of
        # the searched list.
        assert "list_id" in used[index]["Index Cond"]
    assert [scan for plan in plans for scan in whole_scans("", plan, large)] == []


@pytest.mark.usefixtures("short_scan_of_few_members")
def test_planner_expects_few_members_with_rare_field_value(
    stack_and_large_tables: tuple[Stack, set[str]],
) -> None:
    """If Postgres expected many matching members, it would also read a second, larger index."""
    stack, _ = stack_and_large_tables
    plans = explain_search(stack, {"field": "fields.city", "is": "UTQIAGVIK"})
    [expected_members] = [
        node["Plan Rows"]
        for plan in plans
        for node in iterate_nodes(plan)
        if node.get("Index Name") == "ix_subscriptions_fields"
    ]
    [(member_count,)] = stack.query(
        "SELECT reltuples::bigint FROM pg_class WHERE relname = 'subscriptions'"
    )
    assert isinstance(member_count, int)
    assert expected_members <= member_count / 1_000


@pytest.mark.usefixtures("short_scan_of_few_members")
@pytest.mark.parametrize("filter_json", UNINDEXED_FILTERS)
def test_unindexed_member_filter_reads_large_list_in_index_order_without_sorting(
    stack_and_large_tables: tuple[Stack, set[str]], filter_json: Json
) -> None:
    stack, large = stack_and_large_tables
    for plan in explain_search(stack, filter_json):
        assert list(whole_scans("", plan, large)) == []
        kinds = [node["Node Type"] for node in iterate_nodes(plan)]
        reads_members = any(
            node.get("Relation Name") == "subscriptions" for node in iterate_nodes(plan)
        )
        # Postgres must read the members in the order of an index, because Postgres can sort members
        # only after reading all of them, even for a query with a LIMIT.
        if reads_members and "Limit" in kinds:
            assert {"Sort", "Incremental Sort"}.isdisjoint(kinds), filter_json


@pytest.mark.usefixtures("short_scan_of_few_members")
@pytest.mark.parametrize("filter_json", [{"field": "status", "is": "active"}, UNINDEXED_FILTERS[4]])
@pytest.mark.parametrize(
    ("sort", "index"),
    [
        ("joined", "ix_subscriptions_active_joined"),
        ("-joined", "ix_subscriptions_active_joined"),
        ("email", "ix_subscriptions_active_email"),
        ("-email", "ix_subscriptions_active_email"),
    ],
)
def test_sorted_page_of_a_large_list_reads_members_in_the_order_of_an_index(
    stack_and_large_tables: tuple[Stack, set[str]], filter_json: Json, sort: str, index: str
) -> None:
    stack, large = stack_and_large_tables
    plans = explain_search(stack, filter_json, sort)
    nodes = [node for plan in plans for node in iterate_nodes(plan)]
    assert index in {node.get("Index Name") for node in nodes}
    assert [scan for plan in plans for scan in whole_scans("", plan, large)] == []
    for plan in plans:
        kinds = {node["Node Type"] for node in iterate_nodes(plan)}
        is_scan = index in {node.get("Index Name") for node in iterate_nodes(plan)}
        # Two members rarely have the same address, so an incremental sort of them is short.
        assert not is_scan or "Sort" not in kinds
