"""Tests of the composer's metadata and tweets: valid requests, and rules for every response."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.composer.text.post import MetadataField, Post
from tests.support.composer.composing import (
    METADATA,
    POSTS,
    TWEETS,
    find_metadata_faults,
    find_tweets_faults,
    make_unique_post,
    request_composer,
)
from tests.support.http.replies import data, problem
from tests.support.people.visiting import Visitor, new_address

PATHS = (METADATA, TWEETS)


@pytest.mark.parametrize(
    ("path", "find_faults"), [(METADATA, find_metadata_faults), (TWEETS, find_tweets_faults)]
)
def test_composer_texts_satisfy_every_rule_for_metadata_and_tweets(
    client: httpx2.Client, path: str, find_faults: Any
) -> None:
    for post in POSTS.values():
        reply = request_composer(client, path, post)
        assert find_faults(post, data(reply)) == []
        assert reply.headers["pressroom-source"] in {"offline", "offline; cached"}


@pytest.mark.parametrize(
    ("includes", "expected_parts"),
    [
        ([","], {"slug", "summary", "tags"}),
        ([" summary , tags "], {"summary", "tags"}),
        (["slug", "tags,slug"], {"slug", "tags"}),
    ],
)
def test_composer_returns_only_the_requested_parts(
    client: httpx2.Client, includes: list[str], expected_parts: set[str]
) -> None:
    metadata = data(
        request_composer(client, METADATA, POSTS["english"], params={"includes": includes})
    )
    assert set(metadata) == expected_parts
    assert (
        find_metadata_faults(POSTS["english"], metadata, *map(MetadataField, expected_parts)) == []
    )


@pytest.mark.parametrize("includes", ["title", "slug,title", "Slug", "slug;tags", "slug,summary2"])
def test_composer_rejects_an_unknown_part_and_names_the_allowed_parts(
    client: httpx2.Client, includes: str
) -> None:
    reply = request_composer(client, METADATA, POSTS["english"], params={"includes": includes})
    detail = problem(reply, 400, "composer.unknown_part")["detail"]
    assert all(part in detail for part in MetadataField)
    assert includes not in detail


MALFORMED_POSTS: dict[str, Any] = {
    "no title": {"content": "x"},
    "no content": {"title": "x"},
    "nothing": {},
    "title is a number": {"title": 7, "content": "x"},
    "content is null": {"title": "x", "content": None},
    "content is a list": {"title": "x", "content": ["x"]},
    "both are empty": {"title": "", "content": ""},
    "both are blank": {"title": " \n", "content": "\t\u00a0\u3000"},
    "title is too long": {"title": "x" * 501, "content": "x"},
    "content is too long": {"title": "x", "content": "x" * 1_000_001},
    "a list": [],
    "a text": "title",
}


@pytest.mark.parametrize("path", PATHS)
def test_composer_rejects_a_malformed_post(client: httpx2.Client, path: str) -> None:
    for description, body in MALFORMED_POSTS.items():
        assert problem(client.post(path, json=body), 422, "body.invalid")["errors"], description


@pytest.mark.tier("properties")
def test_composer_accepts_a_post_of_maximum_length(client: httpx2.Client) -> None:
    sentence = "Ein Satz über das Backen von Brot, wie er oft vorkommt. "
    content = (sentence * (1_000_000 // len(sentence) + 1))[:1_000_000]
    post = Post("T" * 500, content)
    reply = request_composer(client, METADATA, post, headers={"Prefer": "wait=45"})
    assert find_metadata_faults(post, data(reply)) == []
    four_bytes = Post("", "🍞" * 1_000_000)
    assert data(request_composer(client, METADATA, four_bytes, params={"includes": "slug"}))


@pytest.mark.parametrize("path", PATHS)
def test_composer_caches_texts_of_a_post_across_paths_and_owners(
    client: httpx2.Client, stack: Stack, path: str
) -> None:
    post = make_unique_post()
    first_reply = request_composer(client, path, post)
    assert first_reply.headers["pressroom-source"] == "offline"
    for equivalent_path in (path, f"/auxilia{path}", f"/auxilia{path}/"):
        cached_reply = request_composer(client, equivalent_path, post)
        assert cached_reply.headers["pressroom-source"] == "offline; cached"
        assert data(cached_reply) == data(first_reply)
    with stack.client(stack.create_owner().key) as other_client:
        assert (
            request_composer(other_client, path, post).headers["pressroom-source"]
            == "offline; cached"
        )
    changed_post = Post(post.title, post.content + " ")
    assert request_composer(client, path, changed_post).headers["pressroom-source"] == "offline"
    swapped_post = Post(post.content[:400], post.title)
    assert request_composer(client, path, swapped_post).headers["pressroom-source"] == "offline"


def test_composer_caches_each_set_of_parts_separately(client: httpx2.Client) -> None:
    post = make_unique_post()
    for includes, source in (
        ("slug", "offline"),
        ("slug,tags", "offline"),
        ("tags,slug,tags", "offline; cached"),
        ("", "offline"),
        ("summary,slug,tags", "offline; cached"),
    ):
        reply = request_composer(client, METADATA, post, params={"includes": includes})
        assert reply.headers["pressroom-source"] == source, includes


def test_composer_stores_only_its_texts_and_never_the_post(
    client: httpx2.Client, stack: Stack
) -> None:
    redis = stack.resources.redis
    post = Post("Canary", "Chirp. " * 30 + "quetzalcoatlus " + "The end of the post. " * 30)
    keys_before = set(redis.scan_iter("*"))
    assert data(request_composer(client, METADATA, post))

    def find_new_keys() -> list[bytes]:
        return [key for key in redis.scan_iter("pressroom:*") if key not in keys_before]

    eventually(lambda: len(find_new_keys()) == 1, what="the removal of all keys except one")
    [cache_key] = find_new_keys()
    assert cache_key.startswith(b"pressroom:cache:")
    assert b"anary" not in cache_key
    assert 86_000 < int(str(redis.ttl(cache_key))) <= 86_400


@pytest.mark.parametrize("path", PATHS)
def test_composer_with_zero_wait_returns_504_unless_the_texts_are_cached(
    client: httpx2.Client, path: str
) -> None:
    post = make_unique_post()
    problem(
        request_composer(client, path, post, headers={"Prefer": "wait=0"}), 504, "request.too_slow"
    )
    assert data(request_composer(client, path, post))
    assert data(request_composer(client, path, post, headers={"Prefer": "wait=0"}))


def test_composer_call_with_hostile_markup_does_not_delay_mail(
    client: httpx2.Client, stack: Stack, visitor: Visitor
) -> None:
    markup_characters = "<&![*_`~{<&"
    post = Post(
        "Hostile", "\n\n".join(f"**a** {character * 19_900}" for character in markup_characters)
    )
    email = new_address()
    with ThreadPoolExecutor(1) as threads:
        tweets_call = threads.submit(request_composer, client, TWEETS, post)
        visitor.fill_in("/register", email=email)
        eventually(lambda: stack.mails(email), within=10, what="the mail")
        assert find_tweets_faults(post, data(tweets_call.result())) == []


@pytest.mark.parametrize("prefer", ["respond-async", "respond-async, wait=30", "wait=60"])
def test_composer_ignores_respond_async(client: httpx2.Client, prefer: str) -> None:
    assert data(request_composer(client, METADATA, make_unique_post(), headers={"Prefer": prefer}))
