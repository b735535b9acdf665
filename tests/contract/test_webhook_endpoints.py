"""Tests of webhook endpoints: their URLs, scopes and limits, and the keys that created them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack, plain_client
from devstack.supervisor.programs import is_responding
from services.feed.catalogue import FeedEventType
from services.webhooks import endpoints_of_keys
from services.webhooks.webhook_endpoints import MAX_ENDPOINTS
from tests.support.commands.running import run_json_command
from tests.support.http.replies import data, problem
from tests.support.http.webhook_receiver import CREATED, LEFT, new_endpoint, running_receiver
from tests.support.lists.subscribers import Reader, new_list
from tests.support.people.erasure import erase
from tests.support.probe.silent_names import SILENT

HOOK_URL = "http://127.0.0.1:9/hook"
ENDPOINTS_PATH = "/webhook-endpoints"


@pytest.fixture
def subscription_webhook_client(stack: Stack, owner: Owner) -> Iterator[httpx2.Client]:
    """An API client whose key can manage webhooks and read subscriptions."""
    key = stack.create_key(owner.user_id, Scope.WEBHOOK, Scope.SUBSCRIPTION_READ)
    with stack.client(key) as client:
        yield client


def test_new_webhook_is_reported_by_mail_and_its_secret_is_not_stored_in_plain_text(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    endpoint = new_endpoint(client, HOOK_URL, LEFT, CREATED, CREATED)
    secret = endpoint.pop("secret")
    assert endpoint["state"] == "active"
    assert endpoint["types"] == sorted([CREATED, LEFT])
    assert (endpoint["url"], endpoint["list_id"], endpoint["reason"]) == (HOOK_URL, None, None)
    assert data(client.get(f"{ENDPOINTS_PATH}/{endpoint['id']}")) == endpoint
    assert data(client.get(ENDPOINTS_PATH)) == [endpoint]
    mails = eventually(lambda: stack.mails(owner.email), what="the mail")
    assert "webhook" in mails[0]["subject"]
    stored_secrets = stack.query("SELECT s::text FROM webhook_secrets s")
    assert not any(secret.removeprefix("whsec_")[:20] in str(row) for row in stored_secrets)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("ftp://example.com/", "must be a URL such as https://example.com/hooks"),
        ("https://user:secret@example.com/", "without user"),
        ("https://10.0.0.1/", "public IP address"),
        ("https://[::ffff:127.0.0.1]/", "public IP address"),
        ("https://[64:ff9b::7f00:1]/", "public IP address"),
        ("https://2130706433/", "four decimal numbers"),
        ("https://8.8.8.8:25/", "port 443"),
        ("http://8.8.8.8/", "must start with https://"),
        ("https://169.254.169.254/latest", "public IP address"),
    ],
)
def test_webhook_url_of_a_private_or_unsafe_address_is_rejected_with_the_rule(
    client: httpx2.Client, url: str, rule: str
) -> None:
    reply = client.post(ENDPOINTS_PATH, json={"url": url, "types": [CREATED]})
    error = problem(reply, 422, "webhook.url_not_allowed")
    assert rule in error["message"]
    assert "secret" not in error["message"]
    endpoint = new_endpoint(client, HOOK_URL)
    patch_reply = client.patch(f"{ENDPOINTS_PATH}/{endpoint['id']}", json={"url": url})
    problem(patch_reply, 422, "webhook.url_not_allowed")


@pytest.mark.parametrize(
    "body",
    [
        {"url": HOOK_URL, "types": []},
        {"url": HOOK_URL, "types": ["subscription.made_up"]},
        {"url": HOOK_URL},
        {"types": [CREATED]},
        {"url": 7, "types": [CREATED]},
        {"url": "https://example.com/" + "x" * 2000, "types": [CREATED]},
    ],
)
def test_malformed_webhook_endpoint_is_rejected(
    client: httpx2.Client, body: dict[str, Any]
) -> None:
    assert client.post(ENDPOINTS_PATH, json=body).status_code == 422


def test_webhook_endpoint_requires_the_webhook_scope_and_the_scopes_of_its_event_types(
    stack: Stack, owner: Owner, subscription_webhook_client: httpx2.Client, client: httpx2.Client
) -> None:
    endpoint = new_endpoint(subscription_webhook_client, HOOK_URL, CREATED)
    with stack.client(
        stack.create_key(owner.user_id, Scope.SUBSCRIPTION_FULL)
    ) as client_without_scope:
        problem(
            client_without_scope.post(ENDPOINTS_PATH, json={"url": HOOK_URL, "types": [CREATED]}),
            403,
            "auth.insufficient_scope",
        )
    body = {"url": HOOK_URL, "types": ["order.paid"]}
    problem(
        subscription_webhook_client.post(ENDPOINTS_PATH, json=body), 403, "auth.insufficient_scope"
    )
    body = {"url": HOOK_URL, "types": ["key.created"]}
    problem(
        subscription_webhook_client.post(ENDPOINTS_PATH, json=body),
        403,
        "auth.restricted_credential",
    )
    second_endpoint = new_endpoint(client, HOOK_URL, CREATED, LEFT)
    order_endpoint = data(
        client.post(ENDPOINTS_PATH, json={"url": HOOK_URL, "types": ["order.paid", "key.ended"]})
    )
    assert [each["id"] for each in data(subscription_webhook_client.get(ENDPOINTS_PATH))] == [
        second_endpoint["id"],
        endpoint["id"],
    ]
    reply = subscription_webhook_client.get(f"{ENDPOINTS_PATH}/{order_endpoint['id']}")
    assert reply.status_code == 403
    problem(
        subscription_webhook_client.patch(
            f"{ENDPOINTS_PATH}/{endpoint['id']}", json={"types": ["order.paid"]}
        ),
        403,
        "auth.insufficient_scope",
    )


def test_webhook_endpoint_for_a_list_of_another_owner_is_rejected(
    client: httpx2.Client, other_owner: httpx2.Client
) -> None:
    foreign_list_id = new_list(other_owner)["id"]
    body = {"url": HOOK_URL, "types": [CREATED], "list_id": foreign_list_id}
    problem(client.post(ENDPOINTS_PATH, json=body), 404, "list.not_found")
    own_list_id = new_list(client)["id"]
    assert new_endpoint(client, HOOK_URL, list_id=own_list_id)["list_id"] == own_list_id


def test_webhook_endpoint_is_changed_and_paused_and_resumed(client: httpx2.Client) -> None:
    endpoint = new_endpoint(client, HOOK_URL)
    path = f"{ENDPOINTS_PATH}/{endpoint['id']}"
    changed_endpoint = data(client.patch(path, json={"url": f"{HOOK_URL}/2", "types": [LEFT]}))
    assert (changed_endpoint["url"], changed_endpoint["types"]) == (f"{HOOK_URL}/2", [LEFT])
    paused_endpoint = data(client.patch(path, json={"state": "paused"}))
    assert (paused_endpoint["state"], paused_endpoint["reason"]) == (
        "paused",
        "You paused this webhook.",
    )
    problem(client.post(f"{path}/test"), 409, "webhook.not_active")
    problem(
        client.post(f"{path}/replay", json={"since": "2026-01-01T00:00:00Z"}),
        409,
        "webhook.not_active",
    )
    resumed_endpoint = data(client.patch(path, json={"state": "active"}))
    assert (resumed_endpoint["state"], resumed_endpoint["reason"]) == ("active", None)
    error = problem(client.patch(path, json={"state": "ended"}), 422, "body.invalid")
    assert error["errors"][0]["field"] == "body.state"
    rule = "must be active or paused; to end an endpoint, use DELETE"
    assert error["errors"][0]["message"] == rule
    assert data(client.get(path))["state"] == "active"


def test_deleted_webhook_endpoint_is_hidden_and_recorded_as_security_event(
    client: httpx2.Client,
) -> None:
    endpoint = new_endpoint(client, HOOK_URL)
    path = f"{ENDPOINTS_PATH}/{endpoint['id']}"
    assert data(client.delete(path)) == 1
    problem(client.get(path), 404, "webhook.endpoint_not_found")
    problem(client.delete(path), 404, "webhook.endpoint_not_found")
    assert data(client.get(ENDPOINTS_PATH)) == []
    events = data(client.get("/users/me/security-events"))["items"]
    assert [each["type"] for each in events[:2]] == ["webhook.ended", "webhook.created"]
    assert events[0]["detail"] == {"endpoint_id": endpoint["id"]}


def test_account_has_a_maximum_number_of_webhook_endpoints(client: httpx2.Client) -> None:
    endpoints = [new_endpoint(client, HOOK_URL) for _ in range(MAX_ENDPOINTS)]
    body = {"url": HOOK_URL, "types": [CREATED]}
    problem(client.post(ENDPOINTS_PATH, json=body), 409, "webhook.too_many_endpoints")
    data(client.delete(f"{ENDPOINTS_PATH}/{endpoints[0]['id']}"))
    new_endpoint(client, HOOK_URL)


def test_unresponsive_name_servers_of_one_owner_do_not_block_other_owners(
    stack: Stack, other_owner: httpx2.Client
) -> None:
    port = free_port()
    api = stack.start(
        "names-of-owners",
        *("serve", "--port", str(port)),
        module="tests.support.probe.silent_names",
        ready=lambda: is_responding(port, "/healthz"),
        port=port,
        forks=True,
    )

    def ask(key: str, url: str) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {key}"}
        body = {"url": url, "types": [CREATED]}
        with plain_client(base_url=f"http://127.0.0.1:{port}", headers=headers) as client:
            return client.post(ENDPOINTS_PATH, json=body)

    silent_url = f"https://{SILENT}/hook"
    hostile_keys = [stack.create_owner().key for _ in range(3)]
    try:
        with ThreadPoolExecutor(len(hostile_keys)) as pool:
            for reply in pool.map(lambda key: ask(key, silent_url), hostile_keys):
                error = problem(reply, 422, "webhook.url_not_allowed")
                rule = "body.url: must have a host that DNS resolves within 2 seconds"
                assert error["errors"][0]["message"] == rule
        # A DNS look-up continues after its timeout, and occupies the caller's only thread.
        problem(ask(hostile_keys[0], HOOK_URL), 503, "service.busy")
        key = other_owner.headers["Authorization"].removeprefix("Bearer ")
        assert data(ask(key, HOOK_URL))["url"] == HOOK_URL
    finally:
        # Kill the API process, because it would otherwise wait for its DNS look-ups.
        api.kill()


def test_unknown_webhook_delivery_and_malformed_cursor_are_rejected(client: httpx2.Client) -> None:
    path = f"{ENDPOINTS_PATH}/{new_endpoint(client, HOOK_URL)['id']}/deliveries"
    assert data(client.get(path))["items"] == []
    problem(client.get(path, params={"cursor": "x"}), 400, "cursor.invalid")
    problem(client.post(f"{path}/1/resend"), 404, "webhook.delivery_not_found")


def create_endpoint_with_key(
    stack: Stack, owner: Owner, maker_id: int | None = None
) -> tuple[int, int]:
    """Create an API key as a child of the key ``maker_id``, and an endpoint with the new key."""
    key = stack.create_key(owner.user_id, Scope.WEBHOOK, Scope.SUBSCRIPTION_READ)
    with stack.client(key) as program:
        endpoint = new_endpoint(program, HOOK_URL)
    key_id = endpoint["key_id"]
    stack.query("UPDATE api_keys SET maker_id = %s WHERE id = %s", maker_id, key_id)
    return key_id, endpoint["id"]


def read_states(client: httpx2.Client) -> dict[int, str]:
    return {each["id"]: each["state"] for each in data(client.get(ENDPOINTS_PATH))}


def test_webhook_endpoint_ends_when_its_api_key_or_a_parent_key_is_revoked(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    first_key, first_endpoint = create_endpoint_with_key(stack, owner)
    second_key, second_endpoint = create_endpoint_with_key(stack, owner, first_key)
    _, third_endpoint = create_endpoint_with_key(stack, owner, second_key)
    _, unrelated_endpoint = create_endpoint_with_key(stack, owner)
    assert data(client.delete(f"/apikeys/{first_key}")) == 1
    assert read_states(client) == {
        first_endpoint: "ended",
        second_endpoint: "ended",
        third_endpoint: "ended",
        unrelated_endpoint: "active",
    }
    ended_endpoint = data(client.get(f"{ENDPOINTS_PATH}/{first_endpoint}"))
    assert ended_endpoint["reason"] == "The API key of this endpoint was revoked."


def test_webhook_endpoint_ends_with_the_api_key_that_last_changed_its_url(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    endpoint, other_endpoint = (new_endpoint(client, HOOK_URL) for _ in range(2))
    key = stack.create_key(owner.user_id, Scope.WEBHOOK, Scope.SUBSCRIPTION_READ)
    with stack.client(key) as program:
        changed_endpoint = data(
            program.patch(f"{ENDPOINTS_PATH}/{endpoint['id']}", json={"url": f"{HOOK_URL}2"})
        )
        # This change doesn't alter the URL that receives the events.
        data(
            program.patch(
                f"{ENDPOINTS_PATH}/{other_endpoint['id']}", json={"url": HOOK_URL, "types": [LEFT]}
            )
        )
    assert data(client.delete(f"/apikeys/{changed_endpoint['key_id']}")) == 1
    assert read_states(client) == {endpoint["id"]: "ended", other_endpoint["id"]: "active"}


def test_kept_webhook_endpoint_belongs_to_the_account_after_key_revocation(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    key_id, endpoint_id = create_endpoint_with_key(stack, owner)
    path = f"/apikeys/{key_id}"
    assert data(client.delete(path, params={"keep_endpoints": "1"})) == 1
    assert data(client.get(f"{ENDPOINTS_PATH}/{endpoint_id}"))["key_id"] is None
    assert data(client.delete(path)) == 0
    assert read_states(client) == {endpoint_id: "active"}


def test_operator_key_revocation_ends_webhook_endpoints_unless_kept(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    (first_key, first_endpoint), (second_key, second_endpoint) = (
        create_endpoint_with_key(stack, owner) for _ in range(2)
    )
    assert run_json_command(stack, "keys", "revoke", str(first_key))["revoked"] == 1
    assert (
        run_json_command(stack, "keys", "revoke", str(second_key), "--keep-endpoints")["revoked"]
        == 1
    )
    assert read_states(client) == {first_endpoint: "ended", second_endpoint: "active"}


def list_key_mails(stack: Stack, owner: Owner) -> list[str]:
    query = "SELECT detail FROM account_mails WHERE user_id = %s AND kind = 'key_expires'"
    return [str(detail) for (detail,) in stack.query(f"{query} ORDER BY id", owner.user_id)]


def test_expired_api_key_pauses_its_webhook_endpoints_after_a_mailed_warning(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    key_id, endpoint_id = create_endpoint_with_key(stack, owner)
    _, other_endpoint_id = create_endpoint_with_key(stack, owner)

    def expire(interval: str) -> None:
        stack.query(
            "UPDATE api_keys SET expires_at = now() + CAST(%s AS interval) WHERE id = %s",
            interval,
            key_id,
        )
        # Several hosts can run the task at the same time.
        with ThreadPoolExecutor() as pool:
            list(pool.map(endpoints_of_keys.process_expired_keys, [stack.resources] * 4))

    expire("15 days")
    assert list_key_mails(stack, owner) == []
    expire("13 days")
    [warning] = list_key_mails(stack, owner)
    assert f"Pressroom will then pause webhook endpoint {endpoint_id}." in warning
    assert read_states(client) == {endpoint_id: "active", other_endpoint_id: "active"}
    expire("-1 second")
    _, notice = list_key_mails(stack, owner)
    assert f"has expired. Pressroom has paused webhook endpoint {endpoint_id}." in notice
    assert read_states(client) == {endpoint_id: "paused", other_endpoint_id: "active"}
    assert (
        data(client.get(f"{ENDPOINTS_PATH}/{endpoint_id}"))["reason"]
        == "The API key of this endpoint expired."
    )

    resumed_endpoint = data(
        client.patch(f"{ENDPOINTS_PATH}/{endpoint_id}", json={"state": "active"})
    )
    assert resumed_endpoint["key_id"] not in (None, key_id)
    expire("-1 minute")
    assert read_states(client) == {endpoint_id: "active", other_endpoint_id: "active"}
    assert len(list_key_mails(stack, owner)) == 2


def test_erased_person_gets_no_mail_about_an_expired_api_key(stack: Stack, owner: Owner) -> None:
    key_id, _ = create_endpoint_with_key(stack, owner)
    stack.query("UPDATE api_keys SET expires_at = now() WHERE id = %s", key_id)
    stack.query("UPDATE users SET erased_at = now() WHERE id = %s", owner.user_id)
    endpoints_of_keys.process_expired_keys(stack.resources)
    assert list_key_mails(stack, owner) == []


def test_mails_about_new_webhooks_are_limited_per_api_key(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    def count_mails_per_key() -> list[tuple[object, ...]]:
        query = "SELECT count(*) FROM account_mails WHERE user_id = %s AND kind = 'new_webhook'"
        return stack.query(f"{query} GROUP BY detail ORDER BY detail", owner.user_id)

    for _ in range(4):
        new_endpoint(client, HOOK_URL)
    assert count_mails_per_key() == [(3,)]
    create_endpoint_with_key(stack, owner)
    assert sorted(count_mails_per_key()) == [(1,), (3,)]


def test_erasure_of_an_owner_deletes_webhook_endpoints_and_secrets_and_deliveries(
    stack: Stack,
) -> None:
    owner = stack.create_owner()
    with running_receiver() as receiver, stack.client(owner.key) as client:
        endpoint = new_endpoint(client, receiver.url, FeedEventType.KEY_CREATED)
        data(client.post("/apikeys", json={"name": "an event"}))
        eventually(lambda: receiver.hooks, what="the event")
    erase(stack.resources, owner.email)
    for table, column in (
        ("webhook_endpoints", "id"),
        ("webhook_secrets", "endpoint_id"),
        ("webhook_deliveries", "endpoint_id"),
    ):
        assert stack.query(f"SELECT 1 FROM {table} WHERE {column} = %s", endpoint["id"]) == []


def test_erasure_of_a_member_clears_stored_webhook_responses_about_the_member(
    stack: Stack, reader: Reader, list_id: int
) -> None:
    [(owner_id,)] = stack.query("SELECT user_id FROM lists WHERE id = %s", list_id)
    assert isinstance(owner_id, int)
    select_answers = "SELECT answer FROM webhook_deliveries WHERE endpoint_id = %s"
    with running_receiver() as receiver, stack.client(stack.create_key(owner_id)) as client:
        receiver.body = f"thanks, {reader.email}".encode()
        endpoint = new_endpoint(client, receiver.url, CREATED, list_id=list_id)
        reader.joins(list_id)
        eventually(
            lambda: (None,) not in (stack.query(select_answers, endpoint["id"]) or [(None,)]),
            what="the answer",
        )
        [hook] = receiver.hooks
        assert hook.content["data"]["data"]["email"] == reader.email
        erase(stack.resources, reader.email)
        assert stack.query(select_answers, endpoint["id"]) == [(None,)]
