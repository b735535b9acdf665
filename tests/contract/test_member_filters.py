"""A list's subscriptions by address and by tier."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.contract.replies import data
from tests.contract.subscribers import fill, members, new_address, subscribe
from tests.contract.test_members_page import addresses, page
from tests.stack import Stack


def test_email_is_exact_or_a_prefix_with_a_star(
    stack: Stack, client: httpx.Client, list_id: int
) -> None:
    made = ["ann@example.com", "anna@example.com", "ann@example.org", "bob@example.com"]
    made = [f"{word.partition('@')[0]}.{new_address()}" for word in made]
    fill(stack, list_id, made)
    for wanted, expected in (
        (made[0], made[:1]),
        (made[0].upper(), made[:1]),
        (f" {made[0]} ", made[:1]),
        ("ann", []),
        ("ann*", made[:3]),
        ("ANN*", made[:3]),
        ("anna*", made[1:2]),
        ("*", made),
        ("*example.com", []),
        ("bob.*", made[3:]),
        ("", []),
        (made[0] + "\0", []),
        ("ann\0*", []),
        ("nobody@nowhere", []),
    ):
        found = addresses(members(client, list_id, email=wanted))
        assert (wanted, sorted(found)) == (wanted, sorted(expected))


def test_wildcards_of_the_database_are_taken_literally(
    stack: Stack, client: httpx.Client, list_id: int
) -> None:
    percent, under, plain = (f"a{sign}b.{new_address()}" for sign in ("%", "_", "x"))
    slashed = f"a/b.{new_address()}"
    made = [percent, under, plain, slashed]
    fill(stack, list_id, made)
    for wanted, expected in (
        ("a%b*", [percent]),
        ("a_b*", [under]),
        ("a/b*", [slashed]),
        ("a%*", [percent]),
        ("%*", []),
        ("_*", []),
        ("a\\*", []),
        ("a*b*", []),
        (percent, [percent]),
        (under, [under]),
        (f"%{percent[1:]}", []),
    ):
        found = addresses(members(client, list_id, email=wanted))
        assert (wanted, found) == (wanted, expected)


def test_an_address_is_found_in_any_spelling_of_its_domain(
    client: httpx.Client, stranger: httpx.Client, list_id: int
) -> None:
    name = new_address().partition("@")[0]
    assert data(subscribe(stranger, list_id, f"{name}@bücher.example.com")) == 1
    for wanted in (f"{name}@bücher.example.com", f"{name}@XN--BCHER-KVA.example.com"):
        assert len(members(client, list_id, email=wanted)) == 1
    assert len(members(client, list_id, email=f"{name}@bu\u0308ch*")) == 1


@pytest.fixture
def tiers(client: httpx.Client, stack: Stack, list_id: int) -> dict[str, str]:
    """Members of each tier, running and expired: what they are → their address."""
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    over = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    kinds: dict[str, dict[str, str | None]] = {
        "free": {"type": "free"},
        "free with a date": {"type": "free", "paid_expiry": later},
        "silver": {"type": "silver", "paid_expiry": later},
        "silver, for ever": {"type": "silver", "paid_expiry": None},
        "silver, over": {"type": "silver", "paid_expiry": over},
        "gold": {"type": "gold", "paid_expiry": later},
        "gold, over": {"type": "gold", "paid_expiry": over},
    }
    made = {name: new_address() for name in kinds}
    fill(stack, list_id, list(made.values()))
    ids = {each["email"]: each["user_id"] for each in members(client, list_id)}
    for name, wanted in kinds.items():
        path = f"/lists/{list_id}/members/{ids[made[name]]}"
        assert data(client.patch(path, json=wanted))["type"] == wanted["type"]
    return made


def test_premium_is_a_paid_tier_that_runs_now(
    client: httpx.Client, list_id: int, tiers: dict[str, str]
) -> None:
    paid = {"silver", "silver, for ever", "gold"}
    for values, expected in (
        (("1", "true", "True", "TRUE"), paid),
        (("0", "false", "FALSE", "free", "Free"), set(tiers) - paid),
        (("silver", "SILVER"), {"silver", "silver, for ever"}),
        (("gold",), {"gold"}),
    ):
        for value in values:
            found = page(client, list_id, premium=value)
            assert set(addresses(found["items"])) == {tiers[name] for name in expected}, value
            assert found["pagination"]["total"] == len(expected)


def test_filters_go_together(client: httpx.Client, list_id: int, tiers: dict[str, str]) -> None:
    assert addresses(members(client, list_id, premium="1", email=tiers["gold"])) == [tiers["gold"]]
    assert members(client, list_id, premium="1", email=tiers["gold, over"]) == []
    assert members(client, list_id, premium="1", status="removed") == []
