"""How many members joined and left a list: GET /lists/{list}/stats."""

import json
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import httpx2

from core import clock
from tests.commands import pressroom
from tests.contract.bulk import add, addresses, imported, of_addresses
from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, new_address, new_list, subscribe
from tests.maintenance import run_maintenance
from tests.stack import Stack
from tests.visiting import a_visitor


def stats(client: httpx2.Client, list_id: int, **asked: str) -> dict[str, Any]:
    found: dict[str, Any] = data(client.get(f"/lists/{list_id}/stats", params=asked))
    return found


def rows(client: httpx2.Client, list_id: int, **asked: str) -> dict[str, tuple[int, int, int]]:
    """By key: joined, left and net, without what is zero."""
    return {
        row["key"]: (row["joined"], row["left"], row["net"])
        for row in stats(client, list_id, **asked)["rows"]
        if row["joined"] or row["left"]
    }


def today() -> date:
    return clock.now().date()


def test_a_new_list_has_a_row_for_each_of_the_last_thirty_days(
    client: httpx2.Client, list_id: int
) -> None:
    found = stats(client, list_id)
    assert set(found) == {"by", "first_day", "last_day", "rows", "asked", "confirmed"}
    assert found["by"] == "day"
    days = [date.fromisoformat(row.pop("key")) for row in found["rows"]]
    assert [str(days[0]), str(days[-1])] == [found["first_day"], found["last_day"]]
    assert days == [days[0] + timedelta(days=number) for number in range(30)]
    assert timedelta(0) <= today() - days[-1] <= timedelta(days=1)
    assert found["rows"] == [{"joined": 0, "left": 0, "net": 0}] * 30
    assert stats(client, list_id, by="source")["rows"] == []
    assert stats(client, list_id, by="tier")["rows"] == []


def test_each_action_is_counted_where_it_belongs(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    list_id: int,
    make_reader: Callable[[], Reader],
) -> None:
    leaving, removed, moving = make_reader(), make_reader(), make_reader()
    other = new_list(client)["id"]
    for reader in (leaving, removed, moving):
        reader.joins(list_id)
    stranger.post(f"/subscriptions/{list_id}", json={"email": leaving.email})
    leaving.leaves(list_id).joins(list_id).leaves(list_id)
    members = f"/subscriptions/{list_id}/members"
    data(client.delete(f"{members}/{removed.user_id}"))
    data(client.post(f"{members}/{moving.user_id}/transfer", params={"dst_list_id": other}))
    result = imported(client, list_id, of_addresses(*addresses(5)))
    data(client.delete(f"/imports/{result['import_id']}/members"))
    assert data(add(client, list_id, *addresses(3))) == 3
    data(client.put(f"/lists/{list_id}/members/{new_address()}", json={"type": "gold"}))
    for _ in range(2):
        assert rows(client, list_id, by="source") == {
            "login": (4, 4, 0),
            "import": (8, 5, 3),
            "owner": (1, 0, 1),
        }
        assert rows(client, other, by="source") == {"transfer": (1, 0, 1)}
        assert list(rows(client, list_id).values()) == [(13, 9, 4)]
        run_maintenance(stack, "maintenance.fold_counts")


def test_by_tier_a_member_moves_from_one_to_the_other(
    client: httpx2.Client, list_id: int, reader: Reader
) -> None:
    reader.joins(list_id)
    path = f"/lists/{list_id}/members/{reader.user_id}"
    data(client.patch(path, json={"type": "gold"}))
    assert rows(client, list_id, by="tier") == {"free": (1, 1, 0), "gold": (1, 0, 1)}
    assert list(rows(client, list_id)) == list(rows(client, list_id, by="day"))
    assert list(rows(client, list_id).values()) == [(1, 0, 1)]
    assert rows(client, list_id, by="source") == {"login": (1, 0, 1)}
    # Of a person who has left, a tier says nothing.
    reader.leaves(list_id)
    data(client.patch(path, json={"type": "silver"}))
    assert rows(client, list_id, by="tier") == {"free": (1, 1, 0), "gold": (1, 1, 0)}


def test_only_the_days_asked_for_count(
    stack: Stack, client: httpx2.Client, list_id: int, reader: Reader
) -> None:
    reader.joins(list_id)
    run_maintenance(stack, "maintenance.fold_counts")
    stack.query("UPDATE member_days SET day = '2026-02-28' WHERE list_id = %s", list_id)
    month = {"from": "2026-02-01", "to": "2026-02-28"}
    assert rows(client, list_id, **month) == {"2026-02-28": (1, 0, 1)}
    assert len(stats(client, list_id, **month)["rows"]) == 28
    assert rows(client, list_id, **(month | {"to": "2026-02-27"})) == {}
    assert rows(client, list_id, by="source", to="2026-03-29") == {"login": (1, 0, 1)}
    assert rows(client, list_id, by="source", to="2026-03-30") == {}
    assert rows(client, list_id, **{"from": "2026-02-28", "to": "2026-02-28"}) != {}


def test_days_that_can_not_be_shown_are_refused(client: httpx2.Client, list_id: int) -> None:
    for asked in [
        {"from": "2026-02-02", "to": "2026-02-01"},
        {"from": "2020-01-01", "to": "2026-01-01"},
        {"to": "0001-01-05"},
        {"from": "9999-01-01"},
        {"from": "9999-12-31", "to": "9999-12-31"},
    ]:
        reply = client.get(f"/lists/{list_id}/stats", params=asked)
        problem(reply, 400, "figures.range")
    for asked in [{"by": "week"}, {"from": "yesterday"}, {"to": "2026-02-30"}]:
        assert client.get(f"/lists/{list_id}/stats", params=asked).status_code == 400


def test_the_figures_come_to_the_members(stack: Stack, list_id: int, reader: Reader) -> None:
    def faults() -> list[dict[str, object]]:
        done = pressroom(stack, "lists", "verify", "--json")
        found: list[dict[str, object]] = json.loads(done.stdout)
        # Another test may have made rows in its own way.
        assert done.returncode == bool(found)
        return [each for each in found if each["list_id"] == list_id]

    reader.joins(list_id)
    run_maintenance(stack, "maintenance.fold_counts")
    assert faults() == []
    stack.query("UPDATE member_days SET joined = joined + 1 WHERE list_id = %s", list_id)
    fault = {"list_id": list_id, "source": "login", "tier": "free", "active": 1, "counted": 2}
    assert faults() == [fault]
    stack.query("UPDATE member_days SET joined = joined - 1 WHERE list_id = %s", list_id)


def test_the_statistics_tell_how_many_of_those_who_were_asked_confirmed(
    stack: Stack, client: httpx2.Client
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    first, *_ = emails = [new_address() for _ in range(3)]
    for email in emails:
        data(subscribe(client, list_id, email))
    with a_visitor(stack) as visitor:
        title = data(client.get(f"/lists/{list_id}"))["title"]
        path = visitor.mailed_path(first, f"Confirm: “{title}”")
        assert visitor.fill_in(path).status_code in {200, 303}
    found = stats(client, list_id)
    assert (found["asked"], found["confirmed"]) == (3, 1)
    yesterday = str(today() - timedelta(days=1))
    found = stats(client, list_id, to=yesterday)
    assert (found["asked"], found["confirmed"]) == (0, 0)
