"""Every combination of filters and ways of paging, beside a plain reading of the same rows."""

import itertools
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import httpx2
import pytest
from pydantic import TypeAdapter

from api.schemas.envelope import Envelope
from api.schemas.subscriptions import MembersPage
from core import clock
from tests.contract.replies import data
from tests.contract.subscribers import members, new_address, subscribe
from tests.stack import Owner, Stack

Item = dict[str, Any]
STATUSES = ("active", "pending", "unsubscribed", "removed")
# Wildcards of SQL, and an address that begins as another does.
ADDRESSES = ("ann@example.com", "an_@example.com", "ann%b@example.com", "anna@example.com")
EMAILS = (None, "ann@example.com", "ANN*", "an_*", "ann%*", "a\\*", "*", "*example.com", "ann\0*")
PREMIUMS = (None, "1", "0", "free", "silver", "gold")
FILL = """
    WITH everybody AS (
        SELECT (random() * 9e15)::bigint + 1 AS id, row_number() OVER () AS n, *
        FROM unnest(%s) AS address, unnest(%s) AS status,
            unnest(ARRAY['free', 'silver', 'gold']) AS type,
            unnest(ARRAY[NULL, now() - interval '1 day', current_date + interval '2 days'])
                AS expiry
    ), people AS (
        INSERT INTO users (id, email, name)
        SELECT id, id || '@example.net', 'Name ' || n FROM everybody
    )
    INSERT INTO subscriptions (list_id, user_id, status, type, paid_expiry, email, source)
    SELECT %s, id, status, type, expiry, address, (ARRAY['login', 'import'])[1 + n %% 2]
    FROM everybody
"""


@pytest.fixture(scope="module")
def module_owner(stack: Stack) -> Owner:
    return stack.new_owner()


@pytest.fixture(scope="module")
def ask(stack: Stack, module_owner: Owner) -> Iterator[Callable[..., Item]]:
    """Asks for a page of a list that has a member of every kind."""
    with stack.client(module_owner.key) as client:
        body = {"title": "Kinds", "slug": f"kinds-{module_owner.user_id}"}
        list_id = data(client.post("/lists", json=body))["id"]
        stack.query(FILL, list(ADDRESSES), list(STATUSES), list_id)

        def get(**query: object) -> Item:
            wanted = {name: str(value) for name, value in query.items() if value is not None}
            found: Item = data(client.get(f"/lists/{list_id}/subscriptions", params=wanted))
            return found

        yield get


@pytest.fixture(scope="module")
def everybody(ask: Callable[..., Item]) -> list[Item]:
    items = [item for status in STATUSES for item in ask(status=status, limit=1000)["items"]]
    assert len(items) == len(ADDRESSES) * len(STATUSES) * 9
    return sorted(items, key=lambda item: -item["id"])


def matches(item: Item, status: str, email: str | None, premium: str | None) -> bool:
    expiry = item["paid_expiry"]
    unexpired = expiry is None or datetime.fromisoformat(expiry) > clock.now()
    tier = item["type"] if unexpired else "free"
    wanted = {None: (tier,), "1": ("silver", "gold"), "0": ("free",)}.get(premium, (premium,))
    if item["status"] != status or tier not in wanted:
        return False
    if email is None:
        return True
    beginning = email.lower().removesuffix("*")
    address: str = item["email"]
    return address.startswith(beginning) if email.endswith("*") else address == beginning


def test_every_combination_of_filters_finds_and_counts_exactly_those(
    ask: Callable[..., Item], everybody: list[Item]
) -> None:
    for status, email, premium in itertools.product(STATUSES, EMAILS, PREMIUMS):
        expected = [item for item in everybody if matches(item, status, email, premium)]
        found = ask(status=status, email=email, premium=premium, limit=7)
        asked = (status, email, premium)
        assert found["pagination"]["total"] == len(expected), asked
        assert found["items"] == expected[:7], asked


def test_offsets_and_cursors_pass_everybody_once_in_the_same_order(
    ask: Callable[..., Item],
) -> None:
    whole = ask(premium="0", limit=1000)["items"]
    by_offset: list[Item] = []
    by_cursor: list[Item] = []
    page = ask(premium="0", limit=4)
    while True:
        by_cursor += page["items"]
        by_offset += ask(premium="0", limit=4, offset=len(by_offset))["items"]
        cursor = page["pagination"]["next_cursor"]
        if cursor is None:
            break
        page = ask(premium="0", limit=4, cursor=cursor)
    assert by_offset == by_cursor == whole
    assert len(whole) > 8


def test_the_answer_is_to_the_letter_what_its_model_says(
    ask: Callable[..., Item], everybody: list[Item]
) -> None:
    shown = ask(limit=1000)
    body = {"data": shown, "ts": 0}
    model = TypeAdapter(Envelope[MembersPage])
    assert model.dump_python(model.validate_python(body), mode="json") == body
    assert len(shown["items"]) == len(everybody) / len(STATUSES)


def test_owner_is_told_the_own_name_of_those_alone_who_came_by_a_login(
    ask: Callable[..., Item],
) -> None:
    for item in ask(limit=1000)["items"]:
        assert item["user"]["id"] == item["user_id"]
        assert (item["user"]["name"] is not None) == (item["source"] == "login")


def test_premium_has_several_spellings(ask: Callable[..., Item]) -> None:
    for spelling, *others in (("1", "true", "TRUE"), ("0", "False", "FREE"), ("gold", "Gold")):
        expected = ask(premium=spelling)["items"]
        assert all(ask(premium=each)["items"] == expected for each in others)


def test_an_address_is_found_in_any_spelling_of_its_domain(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    name = new_address().partition("@")[0]
    assert data(subscribe(stranger, list_id, f"{name}@bücher.example.com")) == 1
    for wanted in (f" {name}@bücher.example.com ", f"{name}@XN--BCHER-KVA.example.com"):
        assert len(members(client, list_id, email=wanted)) == 1
    assert len(members(client, list_id, email=f"{name}@bu\u0308ch*")) == 1
