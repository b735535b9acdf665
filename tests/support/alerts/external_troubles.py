"""Faults of external servers: mail, photos, the language model, and receivers of webhooks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from tests.support.alerts.trouble import Trouble, fault_at_proxy
from tests.support.alerts.watched_site import Site
from tests.support.composer.composer_stack import build_unique_post
from tests.support.composer.composing import METADATA
from tests.support.http.webhook_receiver import (
    announce_events,
    end_retry_pauses,
    new_endpoint,
    running_receiver,
)
from tests.support.mail.server import ScriptedSmtpServer, running_scripted_server

# Enough concurrent callers to open the circuit breaker of the language model quickly.
_MODEL_CALLER_COUNT = 6
_PHOTO_LABELS: Mapping[str, str] = {"provider": "photo provider"}


def _build_response(status: str, body: bytes = b"{}", **headers: str) -> bytes:
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}Connection: close\r\n\r\n".encode() + body


_RATE_LIMITED_RESPONSE = _build_response("429 Too Many Requests", Retry_After="1")
_LOW_QUOTA_RESPONSE = _build_response(
    "200 OK",
    b'{"total": 0, "total_pages": 0, "results": []}',
    X_Ratelimit_Limit="50",
    X_Ratelimit_Remaining="2",
)


@contextmanager
def _recipients_unknown(site: Site) -> Iterator[None]:
    """Redirect mails to a server that permanently rejects every recipient."""
    original_port = urlsplit(site.stack.environment["PRESSROOM_MAIL_URL"]).port
    assert original_port is not None
    with running_scripted_server(
        ScriptedSmtpServer(answers={"RCPT": "550 5.1.1 There is no such mailbox"})
    ) as talker:
        site.proxies["mail"].redirect_to(talker.port)
        try:
            yield
        finally:
            site.proxies["mail"].redirect_to(original_port)


@contextmanager
def _receiver_down(site: Site) -> Iterator[None]:
    port = free_port()
    with site.client() as client:
        endpoint = new_endpoint(client, f"http://127.0.0.1:{port}/hook")
        announce_events(site.stack, site.owner)
        yield
        with running_receiver(port) as receiver:
            end_retry_pauses(site.stack, endpoint["id"])
            eventually(lambda: receiver.hooks, within=60, what="the delivery")
            _await_deliveries(site)
        client.delete(f"/webhook-endpoints/{endpoint['id']}")


@contextmanager
def _no_webhook_worker(site: Site) -> Iterator[None]:
    with site.client() as client, running_receiver() as receiver:
        endpoint = new_endpoint(client, receiver.url)
        with site.workers["request"].stopped():
            announce_events(site.stack, site.owner)
            yield
        eventually(lambda: receiver.hooks, within=60, what="the delivery")
        _await_deliveries(site)
        client.delete(f"/webhook-endpoints/{endpoint['id']}")


def _await_deliveries(site: Site) -> None:
    """Wait until no delivery is pending, because a worker records the end after the response."""
    pending = "SELECT 1 FROM webhook_deliveries WHERE status = 'pending'"
    eventually(lambda: not site.stack.query(pending), what="the end of the delivery")


EXTERNAL_TROUBLES = (
    Trouble(
        "mail server refuses",
        fault_at_proxy("mail", Proxy.refuse),
        "PressroomMailDeferred",
        calls=Site.join,
    ),
    Trouble("recipients unknown", _recipients_unknown, "PressroomMailRefused", calls=Site.join),
    Trouble(
        "photo provider away",
        fault_at_proxy("photos", Proxy.refuse),
        "PressroomCircuitOpen",
        {"server": "photo provider"},
        calls=Site.search,
    ),
    Trouble(
        "model hung",
        fault_at_proxy("model", Proxy.hang),
        "PressroomCircuitOpen",
        {"server": "language model"},
        calls=lambda _, client: client.post(
            METADATA, json=build_unique_post(), headers={"Prefer": "wait=30"}
        ),
        callers=_MODEL_CALLER_COUNT,
    ),
    Trouble(
        "photo provider limiting us",
        fault_at_proxy("photos", lambda proxy: proxy.answer(_RATE_LIMITED_RESPONSE)),
        "PressroomProviderLimited",
        _PHOTO_LABELS,
        calls=Site.search,
    ),
    Trouble(
        "photo quota nearly spent",
        fault_at_proxy("photos", lambda proxy: proxy.answer(_LOW_QUOTA_RESPONSE)),
        "PressroomPhotoQuotaLow",
        {"provider": "unsplash"},
        calls=Site.search,
    ),
    Trouble("no worker of webhooks", _no_webhook_worker, "PressroomWebhooksLate"),
    Trouble("webhook receiver down", _receiver_down, "PressroomWebhookReceiverDown"),
)
