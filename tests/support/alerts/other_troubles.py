"""Other people's servers: of mail, photos and the language model, and receivers of webhooks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from tests.support.alerts.trouble import Trouble, of_proxy
from tests.support.alerts.watched_site import Site
from tests.support.composer.composing import METADATA
from tests.support.composer.modelling import post
from tests.support.http.webhook_receiver import happen, hooked, let_pauses_pass, new_endpoint
from tests.support.mail.server import Talker, running_talker

# Enough at a time that the model soon fails often enough.
_WRITERS = 6
_WITH_PHOTOS: Mapping[str, str] = {"provider": "photo provider"}


def _reply(status: str, body: bytes = b"{}", **headers: str) -> bytes:
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}Connection: close\r\n\r\n".encode() + body


_TOO_MANY = _reply("429 Too Many Requests", Retry_After="1")
_FEW_LEFT = _reply(
    "200 OK",
    b'{"total": 0, "total_pages": 0, "results": []}',
    X_Ratelimit_Limit="50",
    X_Ratelimit_Remaining="2",
)


@contextmanager
def _recipients_unknown(site: Site) -> Iterator[None]:
    """The mail server takes no address, and refuses each for good."""
    usual = urlsplit(site.stack.environment["PRESSROOM_MAIL_URL"]).port
    assert usual is not None
    with running_talker(Talker(answers={"RCPT": "550 5.1.1 There is no such mailbox"})) as talker:
        site.proxies["mail"].redirect_to(talker.port)
        try:
            yield
        finally:
            site.proxies["mail"].redirect_to(usual)


@contextmanager
def _receiver_down(site: Site) -> Iterator[None]:
    port = free_port()
    with site.client() as client:
        endpoint = new_endpoint(client, f"http://127.0.0.1:{port}/hook")
        happen(site.stack, site.owner)
        yield
        with hooked(port) as receiver:
            let_pauses_pass(site.stack, endpoint["id"])
            eventually(lambda: receiver.hooks, within=60, what="the delivery")
            _await_deliveries(site)
        client.delete(f"/webhook-endpoints/{endpoint['id']}")


@contextmanager
def _no_worker_of_webhooks(site: Site) -> Iterator[None]:
    with site.client() as client, hooked() as receiver:
        endpoint = new_endpoint(client, receiver.url)
        with site.workers["request"].away():
            happen(site.stack, site.owner)
            yield
        eventually(lambda: receiver.hooks, within=60, what="the delivery")
        _await_deliveries(site)
        client.delete(f"/webhook-endpoints/{endpoint['id']}")


def _await_deliveries(site: Site) -> None:
    """They are answered before that is written down."""
    pending = "SELECT 1 FROM webhook_deliveries WHERE status = 'pending'"
    eventually(lambda: not site.stack.query(pending), what="the end of the delivery")


OTHER_TROUBLES = (
    Trouble(
        "mail server refuses",
        of_proxy("mail", Proxy.refuse),
        "PressroomMailDeferred",
        calls=Site.join,
    ),
    Trouble("recipients unknown", _recipients_unknown, "PressroomMailRefused", calls=Site.join),
    Trouble(
        "photo provider away",
        of_proxy("photos", Proxy.refuse),
        "PressroomCircuitOpen",
        {"server": "photo provider"},
        calls=Site.search,
    ),
    Trouble(
        "model hung",
        of_proxy("model", Proxy.hang),
        "PressroomCircuitOpen",
        {"server": "language model"},
        calls=lambda _, client: client.post(METADATA, json=post(), headers={"Prefer": "wait=30"}),
        callers=_WRITERS,
    ),
    Trouble(
        "photo provider limiting us",
        of_proxy("photos", lambda proxy: proxy.answer(_TOO_MANY)),
        "PressroomProviderLimited",
        _WITH_PHOTOS,
        calls=Site.search,
    ),
    Trouble(
        "photo quota nearly spent",
        of_proxy("photos", lambda proxy: proxy.answer(_FEW_LEFT)),
        "PressroomPhotoQuotaLow",
        {"provider": "unsplash"},
        calls=Site.search,
    ),
    Trouble("no worker of webhooks", _no_worker_of_webhooks, "PressroomWebhooksLate"),
    Trouble("webhook receiver down", _receiver_down, "PressroomWebhookReceiverDown"),
)
