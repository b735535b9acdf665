"""Defines the API calls that the fault matrix makes during each fault, and their outcomes."""

import secrets
from collections.abc import Callable
from enum import StrEnum

import httpx2

from tests.support.composer.composer_stack import build_unique_post
from tests.support.composer.composing import METADATA
from tests.support.credits.credits import BALANCE, CONSUME
from tests.support.credits.topups import SHOP, TOPUP
from tests.support.faults.faults import ProxiedSite
from tests.support.faults.rig import Rig
from tests.support.images.pictures import photo

# How many seconds a call asks the API to wait for the job that produces the response.
WAIT_SECONDS = 5
_PREFER = {"Prefer": f"wait={WAIT_SECONDS}"}

Call = Callable[[Rig, httpx2.Client], httpx2.Response]


class Outcome(StrEnum):
    """The outcome of an API call during a fault.

    DONE: the call succeeded. LATER: the call was accepted, and its job runs later. REFUSED: the
    response tells the caller to retry. BROKEN: any other response, or none.
    """

    DONE = "done"
    LATER = "later"
    REFUSED = "refused"
    BROKEN = "broken"


def outcome_of(reply: httpx2.Response) -> Outcome:
    match reply.status_code:
        case 200:
            return Outcome.DONE
        case 202:
            return Outcome.LATER
        case 504:
            return Outcome.REFUSED
        case 429 | 503 if reply.headers.get("retry-after", "").isdigit():
            return Outcome.REFUSED
        case _:
            return Outcome.BROKEN


def _upload(_: Rig, client: httpx2.Client) -> httpx2.Response:
    files = {"file": ("photo.jpg", photo(320, 240))}
    return client.post("/attachments", files=files, headers=_PREFER)


def search_photos(_: ProxiedSite, client: httpx2.Client) -> httpx2.Response:
    params = {"query": secrets.token_hex(4)}
    return client.get("/composer/unsplash/photos/search", params=params, headers=_PREFER)


def subscribe(site: ProxiedSite, client: httpx2.Client) -> httpx2.Response:
    return _subscribe(site.list_id, client)


def _subscribe(list_id: int, client: httpx2.Client) -> httpx2.Response:
    body = {"email": f"{secrets.token_hex(8)}@example.com"}
    return client.post(f"/subscriptions/{list_id}", json=body)


def _unsubscribe(rig: Rig, client: httpx2.Client) -> httpx2.Response:
    subscriber = rig.leaving.pop()
    params = {"trace_id": subscriber.trace_id}
    return client.delete(f"/subscriptions/{rig.list_id}", params=params)


def _topup(_: Rig, client: httpx2.Client) -> httpx2.Response:
    body = {"amount": 5, "currency": "USD", "channel": "sandbox", "redirect_url": SHOP}
    return client.post(TOPUP, json=body, headers=_PREFER)


def _import(rig: Rig, client: httpx2.Client) -> httpx2.Response:
    file = f"email\n{secrets.token_hex(8)}@example.com\n".encode()
    url = f"/lists/{rig.list_id}/imports"
    return client.post(url, params={"filename": "members.csv"}, content=file, headers=_PREFER)


def _export(rig: Rig, client: httpx2.Client) -> httpx2.Response:
    url = f"/lists/{rig.list_id}/exports"
    return client.post(url, json={"kind": "members"}, headers=_PREFER)


def _metrics(rig: Rig, client: httpx2.Client) -> httpx2.Response:
    token = rig.stack.environment["PRESSROOM_METRICS_TOKEN"]
    return client.get("/metrics", headers={"Authorization": f"Bearer {token}"})


CALLS: dict[str, Call] = {
    "balance": lambda _, client: client.get(BALANCE),
    "consume": lambda _, client: client.post(
        CONSUME, json={"amount_credit": 1, "source_id": "matrix"}
    ),
    "upload": _upload,
    "media": lambda rig, client: client.get(rig.media_path),
    "subscribe": subscribe,
    "unsubscribe": _unsubscribe,
    "member page": lambda rig, client: client.get(f"/lists/{rig.list_id}/subscriptions"),
    "composer": lambda _, client: client.post(METADATA, json=build_unique_post(), headers=_PREFER),
    "topup": _topup,
    "import": _import,
    "export": _export,
    "event stream": lambda rig, client: client.get(f"/jobs/{rig.ended_job}/events"),
    "readyz": lambda _, client: client.get("/readyz"),
    "metrics": _metrics,
}

# The API calls that cause load during a fault.
LOAD_CALLS: dict[str, Call] = CALLS | {
    "photo search": search_photos,
    "confirmed subscribe": lambda rig, client: _subscribe(rig.confirmed_list_id, client),
}
