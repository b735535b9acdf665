"""What owners say of their pictures: a text for people who don't see it, a title and tags."""

import time

import httpx
import pytest

from core.scopes import Scope
from tests.contract.replies import data, problem, send
from tests.stack import Owner, Stack

WORDS = {"alt_text": "Boats at dusk", "title": "The harbour", "tags": ["harbour", "Lisbon"]}


def test_words_are_set_and_come_with_the_record(client: httpx.Client) -> None:
    record = data(send(client))
    path = f"/attachments/{record['hash_id']}"
    changed = data(client.patch(path, json=WORDS))
    assert changed == record | WORDS | {"updated_at": changed["updated_at"]}
    assert changed["updated_at"] > record["updated_at"]
    assert data(client.get(path)) == changed
    assert data(client.get("/attachments"))["items"] == [changed]


def test_fields_that_are_not_named_stay(client: httpx.Client) -> None:
    path = f"/attachments/{data(send(client))['hash_id']}"
    data(client.patch(path, json=WORDS))
    for body, expected in (
        ({}, WORDS),
        ({"title": "Boats"}, WORDS | {"title": "Boats"}),
        ({"title": None}, WORDS | {"title": None}),
        # A picture that only decorates has an empty text, which is not the same as none.
        ({"alt_text": ""}, WORDS | {"title": None, "alt_text": ""}),
        ({"tags": []}, {"title": None, "alt_text": "", "tags": []}),
        ({"size": 1, "user_id": 1, "status": 3}, {"title": None, "alt_text": "", "tags": []}),
    ):
        changed = data(client.patch(path, json=body))
        assert {name: changed[name] for name in WORDS} == expected
        assert changed["status"] == 2


def test_of_tags_that_differ_in_case_alone_the_first_stays(client: httpx.Client) -> None:
    path = f"/attachments/{data(send(client))['hash_id']}"
    tags = ["Lisbon", " sea ", "LISBON", "lisbon", "Straße", "STRASSE", "海"]
    assert data(client.patch(path, json={"tags": tags}))["tags"] == [
        "Lisbon",
        "sea",
        "Straße",
        "海",
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"alt_text": "x" * 2001}, "body.alt_text"),
        ({"alt_text": 7}, "body.alt_text"),
        ({"alt_text": "a\0b"}, "body.alt_text"),
        ({"title": "x" * 256}, "body.title"),
        ({"tags": None}, "body.tags"),
        ({"tags": "sea"}, "body.tags"),
        ({"tags": [f"tag {number}" for number in range(51)]}, "body.tags"),
        ({"tags": ["sea", "  "]}, "body.tags[1]"),
        ({"tags": ["x" * 65]}, "body.tags[0]"),
        ({"tags": ["a\0b"]}, "body.tags[0]"),
        ({"tags": ["a\nb"]}, "body.tags[0]"),
        ({"tags": [7]}, "body.tags[0]"),
    ],
)
def test_words_have_bounds(client: httpx.Client, body: dict[str, object], field: str) -> None:
    path = f"/attachments/{data(send(client))['hash_id']}"
    data(client.patch(path, json=WORDS))
    refused = problem(client.patch(path, json=body), 422, "body.invalid")
    assert refused["errors"][0]["field"] == field
    after = data(client.get(path))
    assert {name: after[name] for name in WORDS} == WORDS


def test_words_as_long_as_they_may_be_are_kept(client: httpx.Client) -> None:
    path = f"/attachments/{data(send(client))['hash_id']}"
    longest = {"alt_text": "é" * 2000, "title": "é" * 255, "tags": [f"{n:064}" for n in range(50)]}
    changed = data(client.patch(path, json=longest))
    assert {name: changed[name] for name in WORDS} == longest


def test_pictures_of_others_do_not_exist_and_the_scope_counts(
    stack: Stack, owner: Owner, client: httpx.Client, neighbour: httpx.Client
) -> None:
    record = data(send(client))
    path = f"/attachments/{record['hash_id']}"
    problem(neighbour.patch(path, json=WORDS), 404, "attachment.not_found")
    with stack.client(stack.new_key(owner.user_id, Scope.COMPOSER)) as restricted:
        problem(restricted.patch(path, json=WORDS), 403, "auth.insufficient_scope")
    assert data(client.get(path)) == record


def test_words_of_a_picture_that_is_not_ready_stay_when_it_is(
    stack: Stack, client: httpx.Client
) -> None:
    record = data(send(client, prefer="respond-async", renditions="1"), 200, 202)
    path = f"/attachments/{record['hash_id']}"
    data(client.patch(path, json=WORDS))
    ends_by = time.monotonic() + 60
    while (after := data(client.get(path)))["status"] != 2:
        assert time.monotonic() < ends_by
        time.sleep(0.05)
    assert {name: after[name] for name in WORDS} == WORDS
    assert after["renditions"]
