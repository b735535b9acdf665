"""Lists: made, read, changed and archived by their owner, and read by anybody with a login."""

import re
from typing import Any

import httpx2
import pytest

from tests.contract.replies import data, problem
from tests.contract.subscribers import TIMESTAMP, Reader, new_list, new_slug, trace_for
from tests.stack import Owner, Stack

UINT64_MAX = 2**64 - 1


def fields_at_fault(body: dict[str, Any]) -> list[str]:
    return [each["field"] for each in body["errors"]]


def test_new_list_is_a_channel_with_every_field(client: httpx2.Client, owner: Owner) -> None:
    slug = new_slug()
    made = data(client.post("/lists", json={"title": "  Tea & Toast ", "slug": slug}))
    assert 0 < made["id"] < 2**53
    assert (made["slug"], made["title"], made["user_id"]) == (slug, "Tea & Toast", owner.user_id)
    for name in ("tagline", "description", "avatar_image_url", "favicon_image_url"):
        assert made[name] is None
    assert (made["challenge_provider"], made["challenge_site_key"]) == (None, None)
    flags = ("email_channel_enabled", "challenge_enabled", "confirm_required")
    assert [made[name] for name in flags] == [True, False, True]
    assert made["subscriber_count"] == 0
    assert re.fullmatch(TIMESTAMP, made["created_at"])
    assert re.fullmatch(TIMESTAMP, made["updated_at"])


def test_every_field_of_a_new_list_is_kept(client: httpx2.Client) -> None:
    wanted = {
        "tagline": "Daily",
        "description": "Every day.\nReally.",
        "avatar_image_url": "https://example.com/a.png?b=c#d",
        "favicon_image_url": "http://example.com/favicon.ico",
        "email_channel_enabled": False,
        "challenge_enabled": True,
        "challenge_provider": "hcaptcha",
        "confirm_required": False,
    }
    made = new_list(client, **wanted)
    assert {name: made[name] for name in wanted} == wanted
    assert made["challenge_site_key"] == "sandbox-hcaptcha-site-key"
    assert data(client.get(f"/lists/{made['id']}")) == made


def test_a_list_is_read_by_its_id_and_its_slug_by_anybody(
    client: httpx2.Client, neighbour: httpx2.Client, letter: dict[str, Any]
) -> None:
    for name in (letter["id"], letter["slug"]):
        for caller in (client, neighbour):
            assert data(caller.get(f"/lists/{name}")) == letter


def test_names_that_can_be_no_list_are_400(client: httpx2.Client) -> None:
    for name in [UINT64_MAX + 1, "-1", "1.5", "No_Slug", "a" * 81, "1" * 40, "%00"]:
        problem(client.get(f"/lists/{name}"), 400, "list.name_invalid")


def test_bad_slugs_are_422_and_name_the_field(
    client: httpx2.Client, letter: dict[str, Any]
) -> None:
    for slug in ["", "A", "ä", "a b", "a_b", "-a", "a" * 81, "1", "2026", "a\n", "a/b", "٣"]:
        for reply in (
            client.post("/lists", json={"title": "T", "slug": slug}),
            client.patch(f"/lists/{letter['id']}", json={"slug": slug}),
        ):
            assert fields_at_fault(problem(reply, 422, "list.slug")) == ["body.slug"]
        assert data(client.get(f"/lists/{letter['id']}")) == letter


def test_taken_slug_is_409_whoever_has_it(
    client: httpx2.Client, neighbour: httpx2.Client, letter: dict[str, Any]
) -> None:
    for caller in (client, neighbour):
        body = {"title": "T", "slug": letter["slug"]}
        problem(caller.post("/lists", json=body), 409, "list.slug_taken")
    other = new_list(neighbour)
    reply = neighbour.patch(f"/lists/{other['id']}", json={"slug": letter["slug"]})
    problem(reply, 409, "list.slug_taken")
    assert data(neighbour.get(f"/lists/{other['id']}"))["slug"] == other["slug"]


def test_bad_titles_are_422(client: httpx2.Client, list_id: int) -> None:
    for title in ["", " ", "t" * 201, "a\nb", "a\u2028b", "a\x1bb"]:
        for reply in (
            client.post("/lists", json={"title": title, "slug": new_slug()}),
            client.patch(f"/lists/{list_id}", json={"title": title}),
        ):
            assert fields_at_fault(problem(reply, 422, "list.title")) == ["body.title"]


@pytest.mark.parametrize("name", ["avatar_image_url", "favicon_image_url"])
def test_bad_image_addresses_are_422(client: httpx2.Client, list_id: int, name: str) -> None:
    for url in (
        *("", "picture.png", "//example.com/a.png", "javascript:alert(1)", "https://"),
        *("data:image/png;base64,AAAA", "https://[::1/a.png", "https://example.com/\n.png"),
        "https://example.com/" + "a" * 2048,
    ):
        reply = client.patch(f"/lists/{list_id}", json={name: url})
        assert fields_at_fault(problem(reply, 422, "list.image_url")) == [f"body.{name}"]


def test_types_are_strict(client: httpx2.Client, list_id: int) -> None:
    value: object
    for name, value in [
        ("title", None),
        ("slug", True),
        ("tagline", "t" * 501),
        ("description", "a\0b"),
        ("avatar_image_url", []),
        ("confirm_required", "false"),
        ("challenge_enabled", 0),
        ("challenge_provider", "other"),
    ]:
        whole: dict[str, object] = {"title": "T", "slug": new_slug(), name: value}
        for reply in (
            client.post("/lists", json=whole),
            client.patch(f"/lists/{list_id}", json={name: value}),
        ):
            assert fields_at_fault(problem(reply, 422, "body.invalid")) == [f"body.{name}"]


def test_what_the_service_sets_itself_is_not_the_callers(client: httpx2.Client) -> None:
    made = new_list(client, id=1, user_id=1, subscriber_count=9, archived_at=None)
    assert made["subscriber_count"] == 0
    assert made["id"] != 1 != made["user_id"]


def test_patch_changes_what_is_named_and_null_clears(client: httpx2.Client) -> None:
    made = new_list(client, tagline="Daily", description="Long", confirm_required=True)
    path = f"/lists/{made['id']}"
    changed = data(client.patch(path, json={"tagline": None, "title": "Weekly"}))
    assert changed["updated_at"] > made["updated_at"]
    expected = {"tagline": None, "title": "Weekly", "updated_at": changed["updated_at"]}
    assert changed == {**made, **expected}
    assert data(client.get(path)) == changed
    assert data(client.patch(path, json={})) == changed


def test_slug_can_change_and_the_old_one_is_free(client: httpx2.Client) -> None:
    made, slug = new_list(client), new_slug()
    assert data(client.patch(f"/lists/{made['id']}", json={"slug": slug}))["slug"] == slug
    assert data(client.get(f"/lists/{slug}"))["id"] == made["id"]
    problem(client.get(f"/lists/{made['slug']}"), 404, "list.not_found")
    assert new_list(client, slug=made["slug"])["id"] != made["id"]


def test_archived_list_is_gone_for_its_owner_and_nobody_joins_it(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, letter: dict[str, Any]
) -> None:
    list_id = letter["id"]
    reader.joins(list_id)
    assert data(client.delete(f"/lists/{list_id}")) == 1
    for reply in (
        client.delete(f"/lists/{list_id}"),
        client.get(f"/lists/{list_id}"),
        client.get(f"/lists/{letter['slug']}"),
        client.patch(f"/lists/{list_id}", json={"title": "T"}),
        client.get(f"/lists/{list_id}/subscriptions"),
        client.get(f"/subscriptions/{list_id}/members/{reader.user_id}/subs"),
        client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"),
        reader.client.post(f"/subscriptions/{list_id}/no-challenge"),
        stranger.post(f"/subscriptions/{list_id}", json={"email": "a@example.com"}),
    ):
        problem(reply, 404, "list.not_found")
    assert data(client.get("/lists"))["items"] == []
    slug_is_kept = client.post("/lists", json={"title": "T", "slug": letter["slug"]})
    problem(slug_is_kept, 409, "list.slug_taken")


def test_archived_list_can_be_left(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    reader: Reader,
    letter: dict[str, Any],
) -> None:
    list_id = letter["id"]
    reader.joins(list_id)
    trace_id = trace_for(stack, list_id, reader.user_id)
    assert data(client.delete(f"/lists/{list_id}")) == 1
    assert data(stranger.get("/subscriptions/opponent", params={"trace_id": trace_id}))
    off = stranger.post(f"/subscriptions/{list_id}/delete", params={"trace_id": trace_id})
    assert data(off) == 1
    assert reader.stands(list_id) == ("active", False)
    reply = stranger.delete(f"/subscriptions/{letter['slug']}", params={"trace_id": trace_id})
    assert data(reply) == 1
    assert reader.stands(list_id) == ("unsubscribed", False)
    assert data(reader.client.get("/subscriptions")) == []
