"""Tests of mailing lists, and of the statistics about members who join and leave."""

import json
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import httpx2

from core import clock
from devstack.harness.stack import Owner, Stack
from tests.support.commands.running import pressroom
from tests.support.http.replies import TIMESTAMP, data, fields_at_fault, problem
from tests.support.imports.bulk import add, build_address_file, build_addresses, import_members_file
from tests.support.lists.subscribers import (
    Reader,
    new_address,
    new_list,
    new_slug,
    subscribe,
    trace_for,
)
from tests.support.people.visiting import new_visitor
from tests.support.stack.maintenance import run_maintenance

UINT64_MAX = 2**64 - 1


def test_new_list_has_default_values_for_every_field(client: httpx2.Client, owner: Owner) -> None:
    slug = new_slug()
    created_list = data(client.post("/lists", json={"title": "  Tea & Toast ", "slug": slug}))
    assert 0 < created_list["id"] < 2**53
    assert (created_list["slug"], created_list["title"], created_list["user_id"]) == (
        slug,
        "Tea & Toast",
        owner.user_id,
    )
    for name in ("tagline", "description", "avatar_image_url", "favicon_image_url"):
        assert created_list[name] is None
    assert (created_list["challenge_provider"], created_list["challenge_site_key"]) == (None, None)
    flags = ("email_channel_enabled", "challenge_enabled", "confirm_required")
    assert [created_list[name] for name in flags] == [True, False, True]
    assert created_list["subscriber_count"] == 0
    assert TIMESTAMP.fullmatch(created_list["created_at"])
    assert TIMESTAMP.fullmatch(created_list["updated_at"])


def test_new_list_keeps_every_given_field(client: httpx2.Client) -> None:
    fields = {
        "tagline": "Daily",
        "description": "Every day.\nReally.",
        "avatar_image_url": "https://example.com/a.png?b=c#d",
        "favicon_image_url": "http://example.com/favicon.ico",
        "email_channel_enabled": False,
        "challenge_enabled": True,
        "challenge_provider": "hcaptcha",
        "confirm_required": False,
    }
    created_list = new_list(client, **fields)
    assert {name: created_list[name] for name in fields} == fields
    assert created_list["challenge_site_key"] == "sandbox-hcaptcha-site-key"
    assert data(client.get(f"/lists/{created_list['id']}")) == created_list


def test_list_can_be_read_by_id_and_slug_by_any_owner(
    client: httpx2.Client, other_owner: httpx2.Client, mailing_list: dict[str, Any]
) -> None:
    for id_or_slug in (mailing_list["id"], mailing_list["slug"]):
        for caller in (client, other_owner):
            assert data(caller.get(f"/lists/{id_or_slug}")) == mailing_list


def test_malformed_list_names_are_rejected(client: httpx2.Client) -> None:
    for name in [UINT64_MAX + 1, "-1", "1.5", "No_Slug", "a" * 81, "1" * 40, "%00"]:
        problem(client.get(f"/lists/{name}"), 400, "list.name_invalid")


def test_slug_of_another_list_is_rejected_for_every_owner(
    client: httpx2.Client, other_owner: httpx2.Client, mailing_list: dict[str, Any]
) -> None:
    for caller in (client, other_owner):
        body = {"title": "T", "slug": mailing_list["slug"]}
        problem(caller.post("/lists", json=body), 409, "list.slug_taken")
    other_list = new_list(other_owner)
    reply = other_owner.patch(f"/lists/{other_list['id']}", json={"slug": mailing_list["slug"]})
    problem(reply, 409, "list.slug_taken")
    assert data(other_owner.get(f"/lists/{other_list['id']}"))["slug"] == other_list["slug"]


INVALID_SLUGS = ("", "A", "ä", "a b", "a_b", "-a", "a" * 81, "1", "2026", "a\n", "a/b", "٣")
INVALID_TITLES = ("", " ", "t" * 201, "a\nb", "a\u2028b", "a\x1bb")
INVALID_IMAGE_URLS = (
    *("", "picture.png", "//example.com/a.png", "javascript:alert(1)", "https://"),
    *("data:image/png;base64,AAAA", "https://[::1/a.png", "https://example.com/\n.png"),
    "https://example.com/" + "a" * 2048,
)


def test_invalid_list_values_are_rejected_and_name_their_field(
    client: httpx2.Client, mailing_list: dict[str, Any]
) -> None:
    path = f"/lists/{mailing_list['id']}"
    invalid_values: list[tuple[str, str, object]] = [
        *(("list.slug", "slug", slug) for slug in INVALID_SLUGS),
        *(("list.title", "title", title) for title in INVALID_TITLES),
        *(("list.image_url", "avatar_image_url", url) for url in INVALID_IMAGE_URLS),
        *(("list.image_url", "favicon_image_url", url) for url in INVALID_IMAGE_URLS),
        ("body.invalid", "title", None),
        ("body.invalid", "slug", True),
        ("body.invalid", "tagline", "t" * 501),
        ("body.invalid", "description", "a\0b"),
        ("body.invalid", "avatar_image_url", []),
        ("body.invalid", "confirm_required", "false"),
        ("body.invalid", "challenge_enabled", 0),
        ("body.invalid", "challenge_provider", "other"),
    ]
    for code, name, value in invalid_values:
        for reply in (
            client.post("/lists", json={"title": "T", "slug": new_slug(), name: value}),
            client.patch(path, json={name: value}),
        ):
            assert fields_at_fault(problem(reply, 422, code)) == [f"body.{name}"], value
    assert data(client.get(path)) == mailing_list


def test_list_ignores_fields_that_only_the_service_sets(client: httpx2.Client) -> None:
    created_list = new_list(client, id=1, user_id=1, subscriber_count=9, archived_at=None)
    assert created_list["subscriber_count"] == 0
    assert created_list["id"] != 1 != created_list["user_id"]


def test_list_patch_changes_only_given_fields_and_null_clears_a_field(
    client: httpx2.Client,
) -> None:
    created_list = new_list(client, tagline="Daily", description="Long", confirm_required=True)
    path = f"/lists/{created_list['id']}"
    changed_list = data(client.patch(path, json={"tagline": None, "title": "Weekly"}))
    assert changed_list["updated_at"] > created_list["updated_at"]
    expected_changes = {
        "tagline": None,
        "title": "Weekly",
        "updated_at": changed_list["updated_at"],
    }
    assert changed_list == {**created_list, **expected_changes}
    assert data(client.get(path)) == changed_list
    assert data(client.patch(path, json={})) == changed_list


def test_list_slug_can_be_changed_and_the_old_slug_becomes_free(client: httpx2.Client) -> None:
    created_list = new_list(client)
    changed_slug = new_slug()
    assert (
        data(client.patch(f"/lists/{created_list['id']}", json={"slug": changed_slug}))["slug"]
        == changed_slug
    )
    assert data(client.get(f"/lists/{changed_slug}"))["id"] == created_list["id"]
    problem(client.get(f"/lists/{created_list['slug']}"), 404, "list.not_found")
    assert new_list(client, slug=created_list["slug"])["id"] != created_list["id"]


def test_archived_list_is_not_found_and_cannot_be_joined_but_keeps_its_slug(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, mailing_list: dict[str, Any]
) -> None:
    list_id = mailing_list["id"]
    reader.joins(list_id)
    assert data(client.delete(f"/lists/{list_id}")) == 1
    for reply in (
        client.delete(f"/lists/{list_id}"),
        client.get(f"/lists/{list_id}"),
        client.get(f"/lists/{mailing_list['slug']}"),
        client.patch(f"/lists/{list_id}", json={"title": "T"}),
        client.get(f"/lists/{list_id}/subscriptions"),
        client.get(f"/subscriptions/{list_id}/members/{reader.user_id}/subs"),
        client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"),
        reader.client.post(f"/subscriptions/{list_id}/no-challenge"),
        stranger.post(f"/subscriptions/{list_id}", json={"email": "a@example.com"}),
    ):
        problem(reply, 404, "list.not_found")
    assert data(client.get("/lists"))["items"] == []
    reply_to_reuse = client.post("/lists", json={"title": "T", "slug": mailing_list["slug"]})
    problem(reply_to_reuse, 409, "list.slug_taken")


def test_archived_list_can_still_be_unsubscribed_from(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    reader: Reader,
    mailing_list: dict[str, Any],
) -> None:
    list_id = mailing_list["id"]
    reader.joins(list_id)
    trace_id = trace_for(stack, list_id, reader.user_id)
    assert data(client.delete(f"/lists/{list_id}")) == 1
    assert data(stranger.get("/subscriptions/opponent", params={"trace_id": trace_id}))
    one_click_reply = stranger.post(
        f"/subscriptions/{list_id}/delete", params={"trace_id": trace_id}
    )
    assert data(one_click_reply) == 1
    assert reader.read_status(list_id) == ("active", False)
    reply = stranger.delete(f"/subscriptions/{mailing_list['slug']}", params={"trace_id": trace_id})
    assert data(reply) == 1
    assert reader.read_status(list_id) == ("unsubscribed", False)
    assert data(reader.client.get("/subscriptions")) == []


def read_statistics(client: httpx2.Client, list_id: int, **query: str) -> dict[str, Any]:
    return dict(data(client.get(f"/lists/{list_id}/stats", params=query)))


def count_changes(
    client: httpx2.Client, list_id: int, **query: str
) -> dict[str, tuple[int, int, int]]:
    """Map the key of each statistics row with joins or leaves to the counts (joined, left, net)."""
    return {
        row["key"]: (row["joined"], row["left"], row["net"])
        for row in read_statistics(client, list_id, **query)["rows"]
        if row["joined"] or row["left"]
    }


def today() -> date:
    return clock.now().date()


def test_new_list_has_statistics_for_each_of_the_last_thirty_days(
    client: httpx2.Client, list_id: int
) -> None:
    statistics = read_statistics(client, list_id)
    assert set(statistics) == {"by", "first_day", "last_day", "rows", "asked", "confirmed"}
    assert statistics["by"] == "day"
    days = [date.fromisoformat(row.pop("key")) for row in statistics["rows"]]
    assert [str(days[0]), str(days[-1])] == [statistics["first_day"], statistics["last_day"]]
    assert days == [days[0] + timedelta(days=number) for number in range(30)]
    assert timedelta(0) <= today() - days[-1] <= timedelta(days=1)
    zero_counts = dict.fromkeys(("joined", "left", "net", "seen", "asked", "confirmed"), 0)
    assert statistics["rows"] == [zero_counts | {"stated": None}] * 30
    assert read_statistics(client, list_id, by="source")["rows"] == []
    assert read_statistics(client, list_id, by="tier")["rows"] == []


def test_list_statistics_count_every_join_and_leave_by_source(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    list_id: int,
    make_reader: Callable[[], Reader],
) -> None:
    unsubscriber = make_reader()
    removed_reader = make_reader()
    transferred_reader = make_reader()
    other_list_id = new_list(client)["id"]
    for reader in (unsubscriber, removed_reader, transferred_reader):
        reader.joins(list_id)
    stranger.post(f"/subscriptions/{list_id}", json={"email": unsubscriber.email})
    unsubscriber.leaves(list_id).joins(list_id).leaves(list_id)
    members_path = f"/subscriptions/{list_id}/members"
    data(client.delete(f"{members_path}/{removed_reader.user_id}"))
    data(
        client.post(
            f"{members_path}/{transferred_reader.user_id}/transfer",
            params={"dst_list_id": other_list_id},
        )
    )
    result = import_members_file(client, list_id, build_address_file(*build_addresses(5)))
    data(client.delete(f"/imports/{result['import_id']}/members"))
    assert data(add(client, list_id, *build_addresses(3))) == 3
    data(client.put(f"/lists/{list_id}/members/{new_address()}", json={"type": "gold"}))
    for _ in range(2):
        assert count_changes(client, list_id, by="source") == {
            "login": (4, 4, 0),
            # The five members of the undone import count neither as joined nor as left.
            "import": (3, 0, 3),
            "owner": (1, 0, 1),
        }
        assert count_changes(client, other_list_id, by="source") == {"transfer": (1, 0, 1)}
        assert list(count_changes(client, list_id).values()) == [(8, 4, 4)]
        run_maintenance(stack, "maintenance.fold_counts")


def test_list_statistics_by_tier_count_a_tier_change_as_leave_and_join(
    client: httpx2.Client, list_id: int, reader: Reader
) -> None:
    reader.joins(list_id)
    path = f"/lists/{list_id}/members/{reader.user_id}"
    data(client.patch(path, json={"type": "gold"}))
    assert count_changes(client, list_id, by="tier") == {"free": (1, 1, 0), "gold": (1, 0, 1)}
    assert list(count_changes(client, list_id)) == list(count_changes(client, list_id, by="day"))
    assert list(count_changes(client, list_id).values()) == [(1, 0, 1)]
    assert count_changes(client, list_id, by="source") == {"login": (1, 0, 1)}
    # If a person who has left the list gets a new tier, the statistics stay the same.
    reader.leaves(list_id)
    data(client.patch(path, json={"type": "silver"}))
    assert count_changes(client, list_id, by="tier") == {"free": (1, 1, 0), "gold": (1, 1, 0)}


def test_list_statistics_include_only_the_requested_days(
    stack: Stack, client: httpx2.Client, list_id: int, reader: Reader
) -> None:
    reader.joins(list_id)
    run_maintenance(stack, "maintenance.fold_counts")
    stack.query("UPDATE member_days SET day = '2026-02-28' WHERE list_id = %s", list_id)
    month = {"from": "2026-02-01", "to": "2026-02-28"}
    assert count_changes(client, list_id, **month) == {"2026-02-28": (1, 0, 1)}
    assert len(read_statistics(client, list_id, **month)["rows"]) == 28
    assert count_changes(client, list_id, **(month | {"to": "2026-02-27"})) == {}
    assert count_changes(client, list_id, by="source", to="2026-03-29") == {"login": (1, 0, 1)}
    assert count_changes(client, list_id, by="source", to="2026-03-30") == {}
    assert count_changes(client, list_id, **{"from": "2026-02-28", "to": "2026-02-28"}) != {}


def test_list_statistics_reject_invalid_date_ranges(client: httpx2.Client, list_id: int) -> None:
    for query in [
        {"from": "2026-02-02", "to": "2026-02-01"},
        {"from": "2020-01-01", "to": "2026-01-01"},
        {"to": "0001-01-05"},
        {"from": "9999-01-01"},
        {"from": "9999-12-31", "to": "9999-12-31"},
    ]:
        reply = client.get(f"/lists/{list_id}/stats", params=query)
        problem(reply, 400, "figures.range")
    for query in [{"by": "week"}, {"from": "yesterday"}, {"to": "2026-02-30"}]:
        assert client.get(f"/lists/{list_id}/stats", params=query).status_code == 400


def test_list_verification_detects_statistics_that_differ_from_active_members(
    stack: Stack, list_id: int, reader: Reader
) -> None:
    def faults_of_list() -> list[dict[str, object]]:
        result = pressroom(stack, "lists", "verify", "--json")
        all_faults: list[dict[str, object]] = json.loads(result.stdout)
        # The command may also report wrong statistics of other lists, because other tests insert
        # rows directly into the database.
        assert result.returncode == bool(all_faults)
        return [each for each in all_faults if each["list_id"] == list_id]

    reader.joins(list_id)
    run_maintenance(stack, "maintenance.fold_counts")
    assert faults_of_list() == []
    stack.query("UPDATE member_days SET joined = joined + 1 WHERE list_id = %s", list_id)
    expected_fault = {
        "list_id": list_id,
        "source": "login",
        "tier": "free",
        "active": 1,
        "counted": 2,
    }
    assert faults_of_list() == [expected_fault]
    stack.query("UPDATE member_days SET joined = joined - 1 WHERE list_id = %s", list_id)


def test_list_statistics_show_how_many_confirmation_requests_were_confirmed(
    stack: Stack, client: httpx2.Client
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    confirmed_email, *_ = emails = [new_address() for _ in range(3)]
    for email in emails:
        data(subscribe(client, list_id, email))
    with new_visitor(stack) as visitor:
        title = data(client.get(f"/lists/{list_id}"))["title"]
        path = visitor.mailed_path(confirmed_email, f"Confirm your subscription to “{title}”")
        assert visitor.fill_in(path).status_code in {200, 303}
    statistics = read_statistics(client, list_id)
    assert (statistics["asked"], statistics["confirmed"]) == (3, 1)
    yesterday = str(today() - timedelta(days=1))
    statistics = read_statistics(client, list_id, to=yesterday)
    assert (statistics["asked"], statistics["confirmed"]) == (0, 0)
