"""An archived list is gone, but for those who get its mail: they can still leave it."""

from typing import Any

import httpx

from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, trace_for
from tests.stack import Stack


def test_archived_list_is_gone_for_its_owner(
    client: httpx.Client, reader: Reader, letter: dict[str, Any]
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
    ):
        problem(reply, 404, "list.not_found")
    assert data(client.get("/lists"))["items"] == []
    slug_is_kept = client.post("/lists", json={"title": "T", "slug": letter["slug"]})
    problem(slug_is_kept, 409, "list.slug_taken")


def test_nobody_joins_an_archived_list(
    client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    assert data(client.delete(f"/lists/{list_id}")) == 1
    problem(reader.client.post(f"/subscriptions/{list_id}/no-challenge"), 404, "list.not_found")
    reply = stranger.post(f"/subscriptions/{list_id}", json={"email": "a@example.com"})
    problem(reply, 404, "list.not_found")


def test_archived_list_can_be_left(
    stack: Stack,
    client: httpx.Client,
    stranger: httpx.Client,
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
