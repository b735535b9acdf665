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
from tests.support.stack.plan_log import pretend_growth, whole_scans

VOLUME = Volume(0.01)
TIMES = 1_000
Json = dict[str, Any]
Node = dict[str, Any]
# What an index finds of the largest list, and which one.
BY_INDEX: list[tuple[Json, str]] = [
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
    # Postgres may use any index on `bounces` whose first column is the list's id.
    ({"field": "bounced", "is": "hard"}, "uq_subscriptions_user_id_list_id"),
    ({"field": "bounced", "in": ["soft", "hard"]}, "uq_subscriptions_user_id_list_id"),
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
# What none does, so that a bounded number of the newest members is read.
BY_LOOKING: list[Json] = [
    {"field": "fields.city", "contains": "xyz"},
    {"field": "tag", "is_not": "vip"},
    {"field": "utm_source", "contains": "qi"},
    {"field": "utm_campaign", "exists": False},
    {"field": "email_enabled", "is": False},
    {"field": "bounced", "is": "none"},
    {"field": "updated_at", "before": "2001-01-01"},
    {"field": "status", "in": ["pending", "active", "removed"]},
    {"any": [{"field": "tag", "is": "rare"}, {"field": "name", "exists": False}]},
]


@pytest.fixture(scope="module")
def stack_and_large_tables(make_stack: Callable[[str], Stack]) -> tuple[Stack, set[str]]:
    stack = make_stack("filter-plans")
    fill(stack.owner_url, VOLUME, stack.settings().keyring)
    return stack, pretend_growth(stack, TIMES)


def plans_of(stack: Stack, sent: Json) -> list[Node]:
    """The plans of all statements of one page of the largest list."""
    statements: list[str] = []

    def note(_: Any, running: Any, text: str, values: Any, *__: Any) -> None:
        statements.append(running.mogrify(text, values).decode())

    engine = stack.resources.database.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        with stack.resources.unit_of_work() as uow:
            mailing_list = lists.find_by_slug(uow, "list-1")
            assert mailing_list is not None
            wanted = member_filter.read_filter(uow, mailing_list, sent)
            searching.search_members(uow, mailing_list.id, wanted, PageRequest(20))
    finally:
        event.remove(engine, "before_cursor_execute", note)
    found = [each for each in statements if each.startswith("SELECT")]
    rows = [stack.query(f"EXPLAIN (FORMAT JSON) {each.replace('%', '%%')}") for each in found]
    return [row[0][0][0]["Plan"] for row in rows]  # type: ignore[index]


def nodes(plan: Node) -> Iterator[Node]:
    yield plan
    for each in plan.get("Plans", []):
        yield from nodes(each)


@pytest.fixture
def short_scan_of_few_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "MAX_SHORT_SCAN_MEMBERS", 10)


@pytest.mark.usefixtures("short_scan_of_few_members")
@pytest.mark.parametrize(("sent", "index"), BY_INDEX)
def test_selective_member_filter_uses_its_index_on_large_list(
    stack_and_large_tables: tuple[Stack, set[str]], sent: Json, index: str
) -> None:
    stack, large = stack_and_large_tables
    plans = plans_of(stack, sent)
    used = {node.get("Index Name"): node for plan in plans for node in nodes(plan)}
    assert index in used
    if index in {"ix_subscriptions_words", "ix_subscriptions_origin"}:
        # Members of other lists are not looked at.
        assert "list_id" in used[index]["Index Cond"]
    assert [scan for plan in plans for scan in whole_scans("", plan, large)] == []


@pytest.mark.usefixtures("short_scan_of_few_members")
def test_planner_expects_few_members_with_rare_field_value(
    stack_and_large_tables: tuple[Stack, set[str]],
) -> None:
    """A planner that expects many members also reads the list's part of another, longer index."""
    stack, _ = stack_and_large_tables
    plans = plans_of(stack, {"field": "fields.city", "is": "UTQIAGVIK"})
    [expected] = [
        node["Plan Rows"]
        for plan in plans
        for node in nodes(plan)
        if node.get("Index Name") == "ix_subscriptions_fields"
    ]
    [(members,)] = stack.query(
        "SELECT reltuples::bigint FROM pg_class WHERE relname = 'subscriptions'"
    )
    assert isinstance(members, int)
    assert expected <= members / 1_000


@pytest.mark.usefixtures("short_scan_of_few_members")
@pytest.mark.parametrize("sent", BY_LOOKING)
def test_unindexed_member_filter_reads_large_list_in_index_order_without_sorting(
    stack_and_large_tables: tuple[Stack, set[str]], sent: Json
) -> None:
    stack, large = stack_and_large_tables
    for plan in plans_of(stack, sent):
        assert list(whole_scans("", plan, large)) == []
        kinds = [node["Node Type"] for node in nodes(plan)]
        on_members = [node for node in nodes(plan) if node.get("Relation Name") == "subscriptions"]
        # In the order of an index: a sort would have to read all first.
        if on_members and "Limit" in kinds:
            assert {"Sort", "Incremental Sort"}.isdisjoint(kinds), sent
