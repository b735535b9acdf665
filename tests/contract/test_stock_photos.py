"""Tests of stock photos, whose providers are simulated by the sandbox."""

import io
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from PIL import Image

from devstack.harness.stack import Stack
from devstack.sandbox.sandbox_settings import UNSPLASH_PREFIX
from tests.support.http.replies import data, problem, send

SEARCH_PATH = "/composer/stockphoto/photos/search"
DOWNLOAD_PATH = "/composer/stockphoto/photos/download_url"


def new_query(word: str = "hills") -> str:
    """Return a search query that no other test uses, because results of old queries are cached."""
    return f"{word} {time.monotonic_ns()}"


def search(client: httpx2.Client, query: str, **params: str | int) -> httpx2.Response:
    return client.get(SEARCH_PATH, params={"query": query, **params})


@pytest.fixture
def unsplash_client(stack: Stack) -> Iterator[httpx2.Client]:
    """An HTTP client that calls the simulated Unsplash API with a valid access key."""
    headers = {"Authorization": "Client-ID sandbox-unsplash-access-key"}
    base = f"{stack.sandbox_url}{UNSPLASH_PREFIX}"
    with httpx2.Client(base_url=base, headers=headers, timeout=30) as client:
        client.delete("/calls")
        yield client


def list_provider_calls(
    unsplash_client: httpx2.Client, query: str | None = None
) -> list[dict[str, Any]]:
    all_calls: list[dict[str, Any]] = unsplash_client.get("/calls").json()
    return [call for call in all_calls if query is None or call["query"].get("query") == query]


@pytest.mark.parametrize(
    ("params", "page", "limit"),
    [({}, 1, 10), ({"page": 2, "limit": 7}, 2, 7)],
    ids=["the first ten photos", "another page"],
)
def test_photo_search_returns_the_unchanged_payload_of_the_provider(
    client: httpx2.Client,
    unsplash_client: httpx2.Client,
    params: dict[str, int],
    page: int,
    limit: int,
) -> None:
    provider_query: dict[str, str | int] = {"query": new_query(), "page": page, "per_page": limit}
    reply = search(client, str(provider_query["query"]), **params)
    [call] = list_provider_calls(unsplash_client)
    assert call["query"] == {name: str(value) for name, value in provider_query.items()}
    payload = unsplash_client.get("/search/photos", params=provider_query)
    assert len(data(reply)["results"]) == limit
    assert payload.text in reply.text
    assert reply.headers["pressroom-source"] == "unsplash"


def test_photo_search_rejects_invalid_parameters_without_a_provider_call(
    client: httpx2.Client, unsplash_client: httpx2.Client
) -> None:
    assert len(data(search(client, new_query(), limit=30))["results"]) == 30
    unsplash_client.delete("/calls")
    for invalid_query in ("", "query=", "query=%20%09", "query=x&page=0", "query=x&page=two"):
        problem(client.get(f"{SEARCH_PATH}?{invalid_query}"), 400, "request.invalid")
    for limit in ("0", "31", "many"):
        problem(search(client, "x", limit=limit), 400, "request.invalid")
    assert list_provider_calls(unsplash_client) == []


def test_photo_search_results_are_cached_across_owners(
    client: httpx2.Client, unsplash_client: httpx2.Client, stack: Stack
) -> None:
    query = new_query()
    first = search(client, query)
    second = search(client, query)
    assert data(second) == data(first)
    assert second.headers["pressroom-source"] == "unsplash; cached"
    assert len(list_provider_calls(unsplash_client, query)) == 1
    with stack.client(stack.create_owner().key) as other_client:
        assert search(other_client, query).headers["pressroom-source"] == "unsplash; cached"
    assert search(client, query, page=2).headers["pressroom-source"] == "unsplash"
    assert search(client, query, limit=3).headers["pressroom-source"] == "unsplash"


def test_photo_search_cache_expires_after_an_hour_and_hides_the_search_text(
    client: httpx2.Client, stack: Stack
) -> None:
    redis = stack.resources.redis
    keys_before = set(redis.scan_iter("pressroom:cache:*"))
    search(client, new_query("confidential"), limit=30)
    new_keys = set(redis.scan_iter("pressroom:cache:*")) - keys_before
    assert len(new_keys) == 1
    assert b"confidential" not in next(iter(new_keys))
    assert 3500 < int(str(redis.ttl(next(iter(new_keys))))) <= 3600
    assert int(str(redis.strlen(next(iter(new_keys))))) <= 32 * 1024


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ("limit-429", (503, "stockphoto.limit_reached", "120")),
        ("error-500", (502, "stockphoto.failed", None)),
    ],
)
def test_photo_provider_errors_are_reported_and_never_cached(
    client: httpx2.Client,
    unsplash_client: httpx2.Client,
    trouble: str,
    error: tuple[int, str, str | None],
) -> None:
    query = new_query(trouble)
    for call_count in (1, 2):
        reply = search(client, query)
        problem(reply, *error[:2])
        assert reply.headers.get("retry-after") == error[2]
        assert len(list_provider_calls(unsplash_client, query)) == call_count


def test_metrics_show_the_remaining_quota_of_the_photo_provider(
    stack: Stack, client: httpx2.Client
) -> None:
    data(search(client, new_query()))
    token = stack.environment["PRESSROOM_METRICS_TOKEN"]
    reply = httpx2.get(f"{stack.api_url}/metrics", headers={"Authorization": f"Bearer {token}"})
    labels = '{provider="unsplash",window="hour"}'
    assert f"pressroom_stock_photo_quota{labels} 5000.0" in reply.text
    [line] = [
        each
        for each in reply.text.splitlines()
        if each.startswith(f"pressroom_stock_photo_quota_remaining{labels}")
    ]
    assert 0 <= float(line.split()[1]) < 5000


def test_every_photo_download_is_reported_to_the_provider(
    client: httpx2.Client, unsplash_client: httpx2.Client
) -> None:
    photo = data(search(client, new_query()))["results"][3]
    endpoint = photo["links"]["download_location"]
    unsplash_client.delete("/calls")
    for download_count in (1, 2):
        download = data(client.get(DOWNLOAD_PATH, params={"endpoint": endpoint}))
        assert set(download) == {"url"}
        calls = list_provider_calls(unsplash_client)
        assert len(calls) == download_count
        assert calls[-1]["path"].endswith(f"/photos/{photo['id']}/download")
        assert calls[-1]["query"] == {"ixid": endpoint.partition("ixid=")[2]}


def test_photo_download_requires_an_endpoint_url(client: httpx2.Client) -> None:
    problem(client.get(DOWNLOAD_PATH), 400, "request.invalid")
    problem(
        client.get(DOWNLOAD_PATH, params={"endpoint": ""}), 400, "stockphoto.endpoint_not_allowed"
    )


@pytest.mark.parametrize(
    ("photo_id", "error"),
    [
        ("missing-photo", (404, "stockphoto.not_found", None)),
        ("limit-403", (503, "stockphoto.limit_reached", "60")),
        ("garbage", (502, "stockphoto.failed", None)),
    ],
)
def test_photo_download_errors_of_the_provider_are_reported(
    stack: Stack, client: httpx2.Client, photo_id: str, error: tuple[int, str, str | None]
) -> None:
    endpoint = f"{stack.sandbox_url}{UNSPLASH_PREFIX}/photos/{photo_id}/download"
    reply = client.get(DOWNLOAD_PATH, params={"endpoint": endpoint})
    problem(reply, *error[:2])
    assert reply.headers.get("retry-after") == error[2]


def test_stock_photo_can_be_found_and_downloaded_and_uploaded_in_the_sandbox(
    client: httpx2.Client,
) -> None:
    photo = data(search(client, new_query("boats")))["results"][0]
    endpoint = photo["links"]["download_location"]
    url = data(client.get(DOWNLOAD_PATH, params={"endpoint": endpoint}))["url"]
    file = httpx2.get(url, timeout=30).raise_for_status().content
    record = data(send(client, file, "boats.jpg", prefer="wait=60"))
    assert (record["status"], record["original_mime_type"]) == (2, "image/jpeg")
    ratio = photo["width"] / photo["height"]
    assert record["width"] / record["height"] == pytest.approx(ratio, rel=0.01)
    small_photo = httpx2.get(photo["urls"]["small"], timeout=30).content
    assert Image.open(io.BytesIO(small_photo)).width == 400
    assert httpx2.get(photo["urls"]["small"], timeout=30).content == small_photo


def test_openverse_photos_can_be_searched_and_downloaded(client: httpx2.Client) -> None:
    reply = client.get("/composer/openverse/photos/search", params={"query": "sea", "limit": 30})
    page = data(reply)
    assert (page["page_size"], len(page["results"])) == (20, 20)
    assert reply.headers["pressroom-source"] in {"openverse", "openverse; cached"}
    endpoint = page["results"][4]["detail_url"]
    download_reply = client.get(
        "/composer/openverse/photos/download_url", params={"endpoint": endpoint}
    )
    assert data(download_reply) == {"url": page["results"][4]["url"]}


@pytest.mark.parametrize("prefix", ["", "/auxilia"])
@pytest.mark.parametrize("name", ["stockphoto", "unsplash"])
def test_photo_search_is_available_under_two_provider_names_and_two_paths(
    client: httpx2.Client, prefix: str, name: str
) -> None:
    reply = client.get(f"{prefix}/composer/{name}/photos/search", params={"query": "paths"})
    assert len(data(reply)["results"]) == 10


def test_unknown_photo_provider_is_rejected(client: httpx2.Client) -> None:
    reply = client.get("/composer/flickr/photos/search", params={"query": "x"})
    assert "unsplash" in problem(reply, 400, "request.invalid")["detail"]
