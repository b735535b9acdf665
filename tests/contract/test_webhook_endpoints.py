"""Webhook endpoints: who makes them, what they may name, how they change and end."""

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import httpx
import pytest

from core.scopes import Scope
from devstack.supervisor.programs import answers
from services.webhooks.webhook_endpoints import MAX_ENDPOINTS
from tests.contract.replies import data, problem
from tests.contract.subscribers import new_list
from tests.hooks import CREATED, LEFT, new_endpoint
from tests.ports import free_port
from tests.probe.silent_names import SILENT
from tests.stack import Owner, Stack, eventually, plain_client
from tests.visiting import Visitor, a_visitor, new_account, user_id_of

URL = "http://127.0.0.1:9/hook"
PATH = "/webhook-endpoints"


@pytest.fixture
def keeper(stack: Stack, owner: Owner) -> Iterator[httpx.Client]:
    """A key for webhooks about subscriptions."""
    key = stack.new_key(owner.user_id, Scope.WEBHOOK, Scope.SUBSCRIPTION_READ)
    with stack.client(key) as client:
        yield client


def test_endpoint_is_made_shown_and_mailed_and_its_secret_is_shown_once(
    stack: Stack, owner: Owner, client: httpx.Client
) -> None:
    made = new_endpoint(client, URL, LEFT, CREATED, CREATED)
    secret = made.pop("secret")
    assert made["state"] == "active"
    assert made["types"] == sorted([CREATED, LEFT])
    assert (made["url"], made["list_id"], made["reason"]) == (URL, None, None)
    assert data(client.get(f"{PATH}/{made['id']}")) == made
    assert data(client.get(PATH)) == [made]
    mails = eventually(lambda: stack.mails(owner.email), what="the mail")
    assert isinstance(mails, list)
    assert "webhook" in mails[0]["subject"]
    stored = stack.query("SELECT s::text FROM webhook_secrets s")
    assert not any(secret.removeprefix("whsec_")[:20] in str(row) for row in stored)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("ftp://example.com/", "is written https://host/path"),
        ("https://user:secret@example.com/", "without a user"),
        ("https://10.0.0.1/", "public address"),
        ("https://[::ffff:127.0.0.1]/", "public address"),
        ("https://[64:ff9b::7f00:1]/", "public address"),
        ("https://2130706433/", "four decimal numbers"),
        ("https://8.8.8.8:25/", "port 443"),
        ("http://8.8.8.8/", "begins with https://"),
        ("https://169.254.169.254/latest", "public address"),
    ],
)
def test_url_that_may_not_be_called_is_refused_by_its_rule(
    client: httpx.Client, url: str, rule: str
) -> None:
    refused = client.post(PATH, json={"url": url, "types": [CREATED]})
    said = problem(refused, 422, "webhook.url_not_allowed")
    assert rule in said["message"]
    assert "secret" not in said["message"]
    made = new_endpoint(client, URL)
    changed = client.patch(f"{PATH}/{made['id']}", json={"url": url})
    problem(changed, 422, "webhook.url_not_allowed")


def test_body_is_checked(client: httpx.Client) -> None:
    for body in (
        {"url": URL, "types": []},
        {"url": URL, "types": ["subscription.made_up"]},
        {"url": URL},
        {"types": [CREATED]},
        {"url": 7, "types": [CREATED]},
        {"url": "https://example.com/" + "x" * 2000, "types": [CREATED]},
    ):
        assert client.post(PATH, json=body).status_code == 422


def test_key_needs_the_scope_and_those_of_its_types(
    stack: Stack, owner: Owner, keeper: httpx.Client, client: httpx.Client
) -> None:
    made = new_endpoint(keeper, URL, CREATED)
    with stack.client(stack.new_key(owner.user_id, Scope.SUBSCRIPTION_FULL)) as other:
        problem(
            other.post(PATH, json={"url": URL, "types": [CREATED]}), 403, "auth.insufficient_scope"
        )
    asked = {"url": URL, "types": ["order.paid"]}
    problem(keeper.post(PATH, json=asked), 403, "auth.insufficient_scope")
    asked = {"url": URL, "types": ["key.created"]}
    problem(keeper.post(PATH, json=asked), 403, "auth.restricted_credential")
    wider = new_endpoint(client, URL, CREATED, LEFT)
    orders = data(client.post(PATH, json={"url": URL, "types": ["order.paid", "key.ended"]}))
    assert [each["id"] for each in data(keeper.get(PATH))] == [wider["id"], made["id"]]
    hidden = keeper.get(f"{PATH}/{orders['id']}")
    assert hidden.status_code == 403
    problem(
        keeper.patch(f"{PATH}/{made['id']}", json={"types": ["order.paid"]}),
        403,
        "auth.insufficient_scope",
    )


def test_list_of_another_owner_is_refused(client: httpx.Client, neighbour: httpx.Client) -> None:
    theirs = new_list(neighbour)["id"]
    asked = {"url": URL, "types": [CREATED], "list_id": theirs}
    problem(client.post(PATH, json=asked), 404, "list.not_found")
    own = new_list(client)["id"]
    assert new_endpoint(client, URL, list_id=own)["list_id"] == own


def test_endpoint_is_changed_paused_and_resumed(client: httpx.Client) -> None:
    made = new_endpoint(client, URL)
    path = f"{PATH}/{made['id']}"
    changed = data(client.patch(path, json={"url": f"{URL}/2", "types": [LEFT]}))
    assert (changed["url"], changed["types"]) == (f"{URL}/2", [LEFT])
    paused = data(client.patch(path, json={"state": "paused"}))
    assert (paused["state"], paused["reason"]) == ("paused", "Its owner paused it.")
    problem(client.post(f"{path}/test"), 409, "webhook.not_active")
    problem(
        client.post(f"{path}/replay", json={"since": "2026-01-01T00:00:00Z"}),
        409,
        "webhook.not_active",
    )
    resumed = data(client.patch(path, json={"state": "active"}))
    assert (resumed["state"], resumed["reason"]) == ("active", None)
    told = problem(client.patch(path, json={"state": "ended"}), 422, "body.invalid")
    assert told["errors"][0]["field"] == "body.state"
    rule = "must be active or paused; DELETE ends an endpoint"
    assert told["errors"][0]["message"] == rule
    assert data(client.get(path))["state"] == "active"


def test_deleted_endpoint_is_shown_no_more(client: httpx.Client) -> None:
    made = new_endpoint(client, URL)
    path = f"{PATH}/{made['id']}"
    assert data(client.delete(path)) == 1
    problem(client.get(path), 404, "webhook.endpoint_not_found")
    problem(client.delete(path), 404, "webhook.endpoint_not_found")
    assert data(client.get(PATH)) == []
    events = data(client.get("/users/me/security-events"))["items"]
    assert [each["type"] for each in events[:2]] == ["webhook.ended", "webhook.created"]
    assert events[0]["detail"] == {"endpoint_id": made["id"]}


def test_account_has_a_bounded_number_of_endpoints(client: httpx.Client) -> None:
    made = [new_endpoint(client, URL) for _ in range(MAX_ENDPOINTS)]
    asked = {"url": URL, "types": [CREATED]}
    problem(client.post(PATH, json=asked), 409, "webhook.too_many_endpoints")
    data(client.delete(f"{PATH}/{made[0]['id']}"))
    new_endpoint(client, URL)


def test_name_server_that_says_nothing_holds_up_no_other_owner(
    stack: Stack, owner: Owner, neighbour: httpx.Client
) -> None:
    port = free_port()
    api = stack.start(
        "names-of-owners",
        *("serve", "--port", str(port)),
        module="tests.probe.silent_names",
        ready=lambda: answers(port, "/healthz"),
        port=port,
        forks=True,
    )
    asked = {"url": URL, "types": [CREATED]}
    own = {"Authorization": f"Bearer {owner.key}"}

    def hang() -> httpx.Response:
        # It ends with the process.
        with plain_client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            silent = {**asked, "url": f"https://{SILENT}/hook"}
            return client.post(PATH, json=silent, headers=own)

    with ThreadPoolExecutor(2) as pool:
        try:
            hanging = [pool.submit(hang) for _ in range(2)]
            refused, _ = wait(hanging, timeout=30, return_when=FIRST_COMPLETED)
            assert len(refused) == 1, "one owner holds both threads"
            problem(refused.pop().result(), 503, "service.busy")
            headers = {"Authorization": neighbour.headers["Authorization"]}
            with plain_client(base_url=f"http://127.0.0.1:{port}", headers=headers) as other:
                assert data(other.post(PATH, json=asked))["url"] == URL
        finally:
            api.kill()


def test_unknown_delivery_and_cursor_are_refused(client: httpx.Client) -> None:
    path = f"{PATH}/{new_endpoint(client, URL)['id']}/deliveries"
    assert data(client.get(path))["items"] == []
    problem(client.get(path, params={"cursor": "x"}), 400, "cursor.invalid")
    problem(client.post(f"{path}/1/resend"), 404, "webhook.delivery_not_found")


# -- credentials ---------------------------------------------------------------------------------


@pytest.fixture
def email(stack: Stack) -> str:
    return new_account(stack)


@pytest.fixture
def member(stack: Stack, email: str) -> Iterator[Visitor]:
    with a_visitor(stack) as visitor:
        visitor.log_in(email)
        yield visitor


def test_session_needs_a_recent_login_to_make_or_change_an_endpoint(
    stack: Stack, member: Visitor, email: str
) -> None:
    origin = {"Origin": stack.api_url}
    asked = {"url": URL, "types": [CREATED]}
    made = data(member.client.post(PATH, json=asked, headers=origin))
    path = f"{PATH}/{made['id']}"
    stack.query(
        "UPDATE user_sessions SET logged_in_at = now() - interval '15 minutes' WHERE user_id = %s",
        user_id_of(stack, email),
    )
    for reply in (
        member.client.post(PATH, json=asked, headers=origin),
        member.client.patch(path, json={"url": f"{URL}/2"}, headers=origin),
        member.client.post(f"{path}/rotate", headers=origin),
    ):
        problem(reply, 403, "auth.login_again")
    assert data(member.client.get(PATH))[0]["url"] == URL
    assert data(member.client.delete(path, headers=origin)) == 1
