"""Tests that rate limits stop each caller who exceeds them, and don't affect other callers."""

import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx2
import limits
import pytest

from api.app import create_app
from api.limits.bulkheads import REPORTS
from api.limits.rate_limits import RateLimitName
from api.openapi.document import find_access, list_api_routes
from core.settings import Settings, notations
from devstack import LOOPBACK
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.stack import Stack
from storage.redis.rate_counters import RateCounters, parse_limits
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import trace_for
from tests.support.security.attackers import new_address
from tests.support.security.people import new_list
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import body_of, signed

# Maps each rate limit to the maximum number of calls per day. The limits are per day, because a
# shorter rate limit window could end during a test.
MAX_CALLS = {RateLimitName.DEFAULT: 8, RateLimitName.ANONYMOUS: 6, RateLimitName.LOGIN: 4}
ORDER = {"amount": 5, "channel": "stripe", "redirect_url": "https://elsewhere.example"}

# The routes without a rate limit. Calls of routes that are not in UNLIMITED_ROUTES count towards a
# rate limit per credential or IP address.
UNLIMITED_ROUTES = {
    "GET /health",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /media/{filename}",
    "GET /console/assets/{name}",
    "GET /imports/{import_id}/errors.csv",
    "GET /exports/{export_id}/file.csv.gz",
    "GET /exports/{export_id}/file.jsonl.gz",
    "POST /webhooks/stripe",
    # A request of a sender counts towards a rate limit only if Pressroom rejects the request.
    "POST /senders/{sender_id}/events",
}
# Routes with which callers can guess passwords and codes, or send mails to other people.
# ``PASSWORD_ROUTES`` doesn't contain /oauth/token, because its secrets are too long to guess, and
# because a program may refresh the tokens of many people from one IP address.
PASSWORD_ROUTES = {
    f"POST {path}"
    for path in (
        "/login",
        "/login/factor",
        "/login/link",
        "/login/passkey",
        "/register",
        "/register/confirm",
        "/password/forgotten",
        "/password/new",
        "/account/password",
        "/account/email",
        "/account/factors/app",
        "/account/factors/passkey",
    )
}
# All routes to which the rate limit for logins applies.
LOGIN_LIMITED_ROUTES = PASSWORD_ROUTES | {
    "POST /account/email/undo",
    "POST /auxilia/credits/topup",
    "POST /preferences/ask",
}


@pytest.fixture(scope="module")
def redis_proxy(stack: Stack) -> Iterator[Proxy]:
    """A proxy through which the API connects to Redis."""
    with open_proxy(stack.environment["PRESSROOM_REDIS_URL"]) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def make_limited_client(stack: Stack, redis_proxy: Proxy) -> Iterator[Callable[..., httpx2.Client]]:
    """A function that makes HTTP clients of an API with low rate limits.

    Each client has its own IP address, unless the test chooses the address.
    """
    with stack.run_second_api(None, **_low_limits(redis_proxy.url)) as api, ExitStack() as opened:

        def make(key: str | None = None, address: str | None = None) -> httpx2.Client:
            client = opened.enter_context(api.client(key))
            client.headers["X-Forwarded-For"] = address or new_address()
            return client

        yield make


def _low_limits(redis_url: str) -> dict[str, str]:
    rate_limits = {
        f"PRESSROOM_RATE_LIMIT_{rate.upper()}": f"{MAX_CALLS[rate]}/day" for rate in RateLimitName
    }
    return {**rate_limits, "PRESSROOM_TRUSTED_PROXIES": LOOPBACK, "PRESSROOM_REDIS_URL": redis_url}


def statuses(call: Callable[[], httpx2.Response], count: int) -> list[int]:
    return [call().status_code for _ in range(count)]


def test_every_route_is_rate_limited_except_the_listed_ones() -> None:
    declared: dict[RateLimitName | None, set[str]] = {}
    for route in list_api_routes(create_app(Settings.model_construct())):
        access = find_access(route)
        assert access
        for method in route.methods or ():
            declared.setdefault(access.stranger, set()).add(f"{method} {route.path_format}")
    assert declared[None] == UNLIMITED_ROUTES
    assert declared[RateLimitName.LOGIN] == LOGIN_LIMITED_ROUTES


def test_openapi_document_shows_which_routes_are_rate_limited(stranger: httpx2.Client) -> None:
    for path, methods in stranger.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            reply = operation["responses"].get("429", {}).get("content", {})
            examples = reply.get("application/problem+json", {}).get("examples", {})
            is_limited = f"{method.upper()} {path}" not in UNLIMITED_ROUTES
            assert ("rate.limited" in examples) == is_limited, path


def test_credential_is_rejected_beyond_its_rate_limit_with_retry_after(
    stack: Stack, make_limited_client: Callable[..., httpx2.Client]
) -> None:
    *replies, rejection = _counted_replies(
        stack, make_limited_client, MAX_CALLS[RateLimitName.DEFAULT] + 1
    )
    for number, reply in enumerate(replies, start=1):
        assert reply.status_code == 200
        assert (
            reply.headers["ratelimit-policy"]
            == f'"default";q={MAX_CALLS[RateLimitName.DEFAULT]};w=86400'
        )
        remaining, _ = _read_remaining_and_reset(reply)
        assert remaining == MAX_CALLS[RateLimitName.DEFAULT] - number
    problem(rejection, 429, "rate.limited")
    remaining, reset = _read_remaining_and_reset(rejection)
    assert remaining == 0
    assert 0 < int(rejection.headers["retry-after"]) == reset <= 86400


def _counted_replies(
    stack: Stack, make_limited_client: Callable[..., httpx2.Client], count: int
) -> list[httpx2.Response]:
    """Return the replies to some calls with a new key, all of which were counted.

    If Redis doesn't answer in time, the API admits a call without counting it. Then the calls are
    repeated with another key.
    """
    for _ in range(3):
        client = make_limited_client(stack.create_owner().key)
        replies = [client.get("/users/me") for _ in range(count)]
        if all("ratelimit" in reply.headers for reply in replies):
            break
    return replies


@pytest.mark.parametrize(
    ("method", "path", "rate"),
    [
        ("GET", "/lists", RateLimitName.ANONYMOUS),
        ("POST", "/lists", RateLimitName.ANONYMOUS),
        # These routes check the credentials later than other routes do.
        ("POST", "/auxilia/credits/consume", RateLimitName.ANONYMOUS),
        ("DELETE", "/subscriptions/1", RateLimitName.ANONYMOUS),
        ("POST", "/auxilia/credits/topup", RateLimitName.LOGIN),
    ],
)
def test_call_rejected_for_unknown_parameter_counts_towards_the_rate_limit(
    make_limited_client: Callable[..., httpx2.Client], method: str, path: str, rate: RateLimitName
) -> None:
    client = make_limited_client()
    client.headers["Prefer"] = "handling=strict"
    status_codes = statuses(
        partial(client.request, method, f"{path}?unknown=1"), MAX_CALLS[rate] + 1
    )
    assert status_codes[-1] == 429
    assert 429 not in status_codes[:-1]


def _read_remaining_and_reset(reply: httpx2.Response) -> tuple[int, int]:
    match = re.fullmatch(r'"(\w+)";r=(\d+);t=(\d+)', reply.headers["ratelimit"])
    assert match, reply.headers
    return int(match[2]), int(match[3])


def test_rejected_requests_beyond_a_rate_limit_are_listed_for_the_owner_of_the_api_key(
    stack: Stack, make_limited_client: Callable[..., httpx2.Client]
) -> None:
    owner = stack.create_owner()
    limit = MAX_CALLS[RateLimitName.DEFAULT]
    status_codes = statuses(partial(make_limited_client(owner.key).get, "/lists"), limit + 2)
    assert status_codes == [200] * limit + [429] * 2
    [(key_id,)] = stack.query("SELECT id FROM api_keys WHERE user_id = %s", owner.user_id)
    path = f"/apikeys/{key_id}/requests"
    with stack.client(owner.key) as client:
        items = partial(_list_rejected, client, path)
        eventually(lambda: len(items()) == 2, what="the rejected requests")
        assert {(each["route"], each["code"]) for each in items()} == {("/lists", "rate.limited")}


def _list_rejected(client: httpx2.Client, path: str) -> list[dict[str, Any]]:
    return list(data(client.get(path, params={"status": "429"}))["items"])


def test_rate_limit_is_shared_by_all_credentials_of_a_user_and_by_no_other_user(
    stack: Stack, make_limited_client: Callable[..., httpx2.Client]
) -> None:
    owner = stack.create_owner()
    address = new_address()
    keys = [
        owner.key,
        *(stack.create_key(owner.user_id) for _ in range(MAX_CALLS[RateLimitName.DEFAULT])),
    ]
    # Each call uses a different API key of the owner, but all keys of the owner share one rate
    # limit.
    status_codes = [
        make_limited_client(key, new_address()).get("/users/me").status_code for key in keys
    ]
    assert status_codes == [200] * MAX_CALLS[RateLimitName.DEFAULT] + [429]
    assert (
        make_limited_client(stack.create_owner().key, address).get("/users/me").status_code == 200
    )
    assert make_limited_client(address=address).post("/subscriptions/1", json={}).status_code == 422


def test_call_counts_towards_the_rate_limit_wherever_its_credential_is_checked(
    stack: Stack, make_limited_client: Callable[..., httpx2.Client]
) -> None:
    # The routes in this test check the API key in different ways. For example, one route checks the
    # key in a separate thread, and another route also accepts the trace id of a mailed link instead
    # of a key.
    client = make_limited_client(stack.create_owner().key)
    for _ in range(2):
        assert client.get("/jobs").status_code == 200
        assert client.post("/auxilia/credits/consume", json={}).status_code == 422
        assert client.get("/subscriptions/opponent").status_code == 400
        assert client.post("/auxilia/credits/topup", json={}).status_code == 422
    assert client.get("/auxilia/credits/balance").status_code == 429


@pytest.mark.parametrize(("account", "status"), [("1", 403), ("no number", 404)])
def test_naming_a_wrong_account_counts_towards_the_rate_limit_of_the_address(
    stack: Stack, make_limited_client: Callable[..., httpx2.Client], account: str, status: int
) -> None:
    client = make_limited_client(stack.create_owner().key)
    client.headers["Pressroom-Account"] = account
    most = MAX_CALLS[RateLimitName.ANONYMOUS]
    expected = [status] * most + [429]
    assert statuses(lambda: client.get("/lists"), most + 1) == expected
    assert client.post("/auxilia/credits/consume", json={}).status_code == 429


def test_key_is_not_rate_limited_for_anonymous_calls_from_its_address(
    stack: Stack, make_limited_client: Callable[..., httpx2.Client]
) -> None:
    address = new_address()
    guesser = make_limited_client("prk_wrong", address)
    expected = [401] * MAX_CALLS[RateLimitName.ANONYMOUS] + [429]
    assert statuses(lambda: guesser.get("/users/me"), len(expected)) == expected
    assert (
        make_limited_client(stack.create_owner().key, address).get("/users/me").status_code == 200
    )


def test_rate_limit_is_shared_by_two_api_processes(
    stack: Stack, redis_proxy: Proxy, make_limited_client: Callable[..., httpx2.Client]
) -> None:
    key = stack.create_owner().key
    with (
        stack.run_second_api(None, **_low_limits(redis_proxy.url)) as second_api,
        second_api.client(key) as second_client,
    ):
        clients = (make_limited_client(key), second_client)
        status_codes = [each.get("/users/me").status_code for each in clients * 4]
        assert status_codes == [200] * MAX_CALLS[RateLimitName.DEFAULT]
        assert {each.get("/users/me").status_code for each in clients} == {429}


def test_address_without_credentials_is_rejected_beyond_its_rate_limit(
    make_limited_client: Callable[..., httpx2.Client],
) -> None:
    client = make_limited_client()
    expected = [422] * MAX_CALLS[RateLimitName.ANONYMOUS] + [429, 429]
    assert statuses(lambda: client.post("/subscriptions/1", json={}), len(expected)) == expected
    # Calls that lack the required credentials also count towards the rate limit of the IP address.
    # If a page is rate limited, the response is an HTML page.
    assert client.get("/users/me").status_code == 429
    page = client.get("/confirm", params={"token": "x"})
    assert page.status_code == 429
    assert page.headers["content-type"].startswith("text/html")
    assert int(page.headers["retry-after"]) > 0
    assert "Too many requests" in page.text
    assert make_limited_client().post("/subscriptions/1", json={}).status_code == 422


def test_ipv6_network_shares_one_rate_limit(
    make_limited_client: Callable[..., httpx2.Client],
) -> None:
    for network in ("2001:db8:77:1", "2001:db8:77:2", "2001:db8:77:3"):
        addresses = [f"{network}::{n:x}" for n in range(MAX_CALLS[RateLimitName.ANONYMOUS] + 1)]
        clients = [make_limited_client(address=address) for address in addresses]
        replies = [client.post("/subscriptions/1", json={}) for client in clients]
        # A call that Redis didn't count in time has no such header. Then repeat the calls.
        if all("ratelimit" in reply.headers for reply in replies):
            break
    status_codes = [reply.status_code for reply in replies]
    assert status_codes == [422] * MAX_CALLS[RateLimitName.ANONYMOUS] + [429]


def test_one_click_unsubscribes_behind_one_provider_address_are_rate_limited_per_reader(
    stack: Stack, make_limited_client: Callable[..., httpx2.Client]
) -> None:
    list_id = new_list(stack, stack.create_owner())
    provider = make_limited_client()
    form = {"List-Unsubscribe": "One-Click"}
    for path in (f"/subscriptions/{list_id}/delete", "/unsubscribe"):
        for _ in range(MAX_CALLS[RateLimitName.ANONYMOUS] + 2):
            trace = {"trace_id": trace_for(stack, list_id, stack.create_owner().user_id)}
            assert provider.post(path, params=trace, data=form).status_code == 200
        # Pressroom limits how often the unsubscribe link of a reader can be used. Pressroom also
        # limits how often forged links can be used from an IP address.
        clicks = statuses(
            lambda: provider.post(path, params=trace, data=form),  # noqa: B023
            MAX_CALLS[RateLimitName.DEFAULT],
        )
        assert clicks[-1] == 429
    forged = statuses(
        lambda: provider.get("/unsubscribe", params={"trace_id": secrets.token_hex(8)}),
        MAX_CALLS[RateLimitName.ANONYMOUS] + 1,
    )
    assert forged == [403] * MAX_CALLS[RateLimitName.ANONYMOUS] + [429]


def test_exempt_routes_are_never_rate_limited(
    make_limited_client: Callable[..., httpx2.Client],
) -> None:
    client = make_limited_client()
    count = MAX_CALLS[RateLimitName.ANONYMOUS] + 2
    for path in ("/healthz", "/media/none.webp", "/exports/1/file.csv.gz", "/metrics"):
        assert 429 not in statuses(lambda path=path: client.get(path), count)  # type: ignore[misc]
    assert 429 not in statuses(lambda: client.post("/webhooks/stripe", content=b"{}"), count)


@pytest.mark.parametrize("fault", ["refuse", "hang"])
def test_only_critical_rate_limits_apply_when_redis_is_down(
    stack: Stack, redis_proxy: Proxy, make_limited_client: Callable[..., httpx2.Client], fault: str
) -> None:
    client = make_limited_client(stack.create_owner().key)
    payer = make_limited_client()
    assert client.get("/users/me").status_code == 200
    getattr(redis_proxy, fault)()
    try:
        count = MAX_CALLS[RateLimitName.DEFAULT] * 3
        assert statuses(lambda: client.get("/users/me"), count) == [200] * count
        stranger_client = make_limited_client()
        assert set(statuses(lambda: stranger_client.post("/subscriptions/1", json={}), count)) == {
            422
        }
        allowed = MAX_CALLS[RateLimitName.LOGIN] // 2
        orders = statuses(lambda: payer.post("/auxilia/credits/topup", json=ORDER), allowed + 2)
        assert orders == [422] * allowed + [429, 429]
    finally:
        redis_proxy.cut()
        redis_proxy.resume()

    def is_counted() -> bool:
        return "ratelimit" in client.get("/users/me").headers

    eventually(is_counted, what="counting after Redis came back")


def test_high_rate_limit_holds_across_processes_that_reserve_blocks(stack: Stack) -> None:
    processes = [RateCounters(stack.settings()) for _ in range(3)]
    [item] = parse_limits("1500/day")
    name = secrets.token_hex(8)

    def take(number: int) -> bool:
        limit_state = processes[number % 3].count(item, "test", name)
        assert limit_state is not None
        return limit_state.remaining >= 0

    with ThreadPoolExecutor(8) as pool:
        allowed = sum(pool.map(take, range(2000)))
    for each in processes:
        each.close()
    block_size = 1500 // 300
    assert 1500 - len(processes) * 8 * block_size <= allowed <= 1500


def test_one_process_can_use_every_call_of_a_high_rate_limit(stack: Stack) -> None:
    counters = RateCounters(stack.settings())
    [item] = parse_limits("900/day")
    name = secrets.token_hex(8)
    limit_states = [counters.count(item, "test", name) for _ in range(901)]
    counters.close()
    assert [each.remaining for each in limit_states if each] == list(range(899, -2, -1))


def test_only_rejected_calls_of_senders_count_per_address(
    stack: Stack, make_limited_client: Callable[..., httpx2.Client]
) -> None:
    with stack.client(stack.create_owner().key) as client:
        sender = new_sender(client)
    provider = make_limited_client()
    limit = MAX_CALLS[RateLimitName.ANONYMOUS]
    body = body_of()

    def post(secret: str) -> httpx2.Response:
        path = f"/senders/{sender['id']}/events"
        return provider.post(path, content=body, headers=signed(secret, body))

    assert statuses(partial(post, sender["secret"]), limit + 2) == [200] * (limit + 2)
    wrong = f"whsec_{'a2' * 16}"
    assert statuses(partial(post, wrong), limit) == [401] * limit
    problem(post(wrong), 429, "rate.limited")
    assert data(post(sender["secret"])) == 1


def test_rate_limit_of_an_address_does_not_affect_simultaneous_reports(
    stack: Stack, make_limited_client: Callable[..., httpx2.Client]
) -> None:
    with stack.client(stack.create_owner().key) as client:
        sender = new_sender(client)
    provider = make_limited_client()
    body = body_of()
    path = f"/senders/{sender['id']}/events"

    def post(_: int) -> int:
        headers = signed(sender["secret"], body)
        return provider.post(path, content=body, headers=headers).status_code

    with ThreadPoolExecutor(16) as pool:
        assert {*pool.map(post, range(16 * 4))} == {200}
    reply = provider.post(path, content=body)
    problem(reply, 401, "sender.signature_invalid")
    remaining = re.search(r";r=(\d+)", reply.headers["ratelimit"])
    assert remaining is not None
    assert int(remaining[1]) >= MAX_CALLS[RateLimitName.ANONYMOUS] - REPORTS.threads


def test_requests_given_back_are_counted_without_redis(stack: Stack) -> None:
    counters = RateCounters(stack.settings())
    [item] = parse_limits("5/day")
    name = secrets.token_hex(8)
    for _ in range(20):
        status = counters.count(item, "test", name)
        assert status is not None
        assert status.remaining == 4
        counters.give_back(status)
        assert counters.count_reserved(item, "test", name) == status
        counters.give_back(status)
    limit_states = [counters.count(item, "test", name) for _ in range(6)]
    counters.close()
    assert [each.remaining for each in limit_states if each] == [4, 3, 2, 1, 0, -1]


def test_charges_with_a_cached_api_key_count_towards_a_high_rate_limit(stack: Stack) -> None:
    # With this rate limit, a process reserves two calls at a time.
    limit = 600
    environment = {"PRESSROOM_RATE_LIMIT_DEFAULT": f"{limit}/day"}
    charge = {"amount_credit": 1, "source_id": "post-1"}
    key = stack.create_owner().key
    with stack.run_second_api(None, **environment) as api, api.client(key) as client:
        replies = [client.post("/auxilia/credits/consume", json=charge) for _ in range(limit)]
        # Before the API process rejects the first charge, it asks Redis how many calls were made.
        # The API process then remembers that the rate limit is reached, so it rejects the second
        # charge without asking Redis.
        rejected = [client.post("/auxilia/credits/consume", json=charge) for _ in range(2)]
    remaining = [re.findall(r'^"default";r=(\d+);', each.headers["ratelimit"]) for each in replies]
    assert remaining == [[str(limit - number)] for number in range(1, limit + 1)]
    for each in rejected:
        problem(each, 429, "rate.limited")
    # Rejected charges are in the log of requests that the API key's owner sees.
    request_ids = tuple(each.headers["x-request-id"] for each in rejected)
    recorded = stack.query("SELECT code FROM api_requests WHERE request_id IN %s", request_ids)
    assert recorded == [("rate.limited",)] * 2


@pytest.mark.parametrize(
    ("notation", "is_valid"),
    [
        ("10/minute", True),
        ("10 per minute", True),
        ("5 per 2 seconds", True),
        ("1/second;20/minute", True),
        ("1/second, 20/minute|9/days", True),
        ("0/hour", True),
        ("", True),
        ("ten/minute", False),
        ("10/fortnight", False),
        ("10", False),
        ("10/minute;", False),
        ("-1/minute", False),
    ],
)
def test_rate_limit_setting_accepts_the_notation_of_the_limits_library(
    notation: str, is_valid: bool
) -> None:
    assert _accepts(notations.check_rate_limits, notation) == is_valid
    assert _accepts(parse_limits, notation) == is_valid
    if is_valid and notation:
        assert len(parse_limits(notation)) == len(limits.parse_many(notation))


def _accepts(read: Callable[[str], Any], notation: str) -> bool:
    try:
        read(notation)
    except ValueError:
        return False
    return True


def test_empty_rate_limit_is_off_and_unset_rate_limit_has_its_default(
    monkeypatch: pytest.MonkeyPatch, stack: Stack, stranger: httpx2.Client
) -> None:
    assert "ratelimit" not in stranger.post("/subscriptions/1", json={}).headers
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    assert Settings().rate_limit_default == ""
    monkeypatch.delenv("PRESSROOM_RATE_LIMIT_DEFAULT")
    settings = Settings()
    assert settings.rate_limit_default == Settings.model_fields["rate_limit_default"].default
    assert settings.rate_limit_login == ""
