import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from fastapi import FastAPI, Request, Response

from core.errors import DomainError
from devstack.sandbox.app import SandboxProvider, create_app
from devstack.sandbox.sandbox_settings import build_sandbox_settings
from devstack.sandbox.senders import posting
from devstack.sandbox.senders.amazon_sns import TOPIC_ARN, SnsServer
from integrations.senders.brevo import BrevoAdapter
from integrations.senders.mailgun import MailgunAdapter
from integrations.senders.port import SenderAdapter, SenderProof, SenderRequest, TopicChange
from integrations.senders.postmark import PostmarkAdapter
from integrations.senders.resend import ResendAdapter
from integrations.senders.sendgrid import SendGridAdapter
from integrations.senders.ses import SesAdapter
from integrations.senders.sns_subscriptions import confirm_subscription
from tests.support.http.servers import serving_app
from tests.support.sandbox.in_process import call_app
from tests.support.senders.adapters import ADDRESS, DELIVERY_ID, describe, parse, verify_request

SECRET = "s3cret"
PROVIDERS = ("ses", "postmark", "mailgun", "sendgrid", "brevo", "resend")
# Maps each kind of event in the sandbox to a description of the report that Pressroom must find in
# the provider's request about this event.
EFFECTS = {
    "accepted": "ignored",
    "delivered": "delivered",
    "opened": "opened",
    "opened_by_machine": "opened machine",
    "clicked": "clicked",
    "hard_bounce": "bounced hard 5.1.1",
    "soft_bounce": "bounced soft 4.2.2",
    "blocked": "bounced blocked",
    "complained": "complained",
    "unsubscribed": "unsubscribed",
}


@pytest.fixture(scope="module")
def senders_app() -> FastAPI:
    router = posting.build_router(SnsServer(), "/senders")
    return create_app((SandboxProvider("Senders", "/senders", "Posts.", router, "/senders"),))


@pytest.fixture(scope="module")
def senders_app_url(senders_app: FastAPI) -> Iterator[str]:
    with serving_app(senders_app) as url:
        yield url


class Intake:
    """A server that takes the place of Pressroom, and stores the requests of the sandbox."""

    def __init__(self) -> None:
        self.requests: list[SenderRequest] = []
        self.url = ""

    def build_app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/senders/7/events")
        async def receive(request: Request) -> Response:
            body = await request.body()
            received = SenderRequest(dict(request.headers), body, datetime.now(UTC))
            self.requests.append(received)
            return Response(status_code=202)

        return app


@pytest.fixture(scope="module")
def intake_server() -> Iterator[Intake]:
    intake = Intake()
    with serving_app(intake.build_app()) as url:
        intake.url = f"{url}/senders/7/events"
        yield intake


@pytest.fixture
def intake(intake_server: Intake) -> Intake:
    intake_server.requests.clear()
    return intake_server


def adapter_of(provider: str, senders_app_url: str) -> SenderAdapter:
    adapters: list[SenderAdapter] = [
        SesAdapter(f"{senders_app_url}/senders/sns"),
        PostmarkAdapter(),
        MailgunAdapter(),
        SendGridAdapter(),
        BrevoAdapter(),
        ResendAdapter(),
    ]
    return adapters[PROVIDERS.index(provider)]


def post(senders_app: FastAPI, path: str, intake: Intake, **content: object) -> list[int]:
    body = {"url": intake.url, "secret": None, **content}
    if path.startswith(("/postmark", "/brevo")):
        body["secret"] = SECRET
    reply = call_app(senders_app, "POST", f"/senders{path}", json=body)
    assert reply.status_code == 200, reply.text
    statuses: list[int] = reply.json()["statuses"]
    return statuses


def is_accepted(adapter: SenderAdapter, request: SenderRequest, senders_app: FastAPI) -> bool:
    key = call_app(senders_app, "GET", "/senders/keys").json().get(adapter.provider, SECRET)
    proof = SenderProof((key,), TOPIC_ARN if adapter.provider == "ses" else None)
    try:
        asyncio.run(verify_request(adapter, request, proof))
    except DomainError as error:
        assert error.code == "sender.signature_invalid", error  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize("provider", PROVIDERS)
def test_sandbox_posts_each_kind_of_event_as_the_provider_does(
    senders_app: FastAPI, senders_app_url: str, intake: Intake, provider: str
) -> None:
    adapter = adapter_of(provider, senders_app_url)
    for kind, effect in EFFECTS.items():
        intake.requests.clear()
        event = {"kind": kind, "email": ADDRESS, "delivery_id": DELIVERY_ID}
        assert post(senders_app, f"/{provider}/events", intake, events=[event]) == [202]
        [request] = intake.requests
        assert is_accepted(adapter, request, senders_app)
        [report] = parse(adapter, request.body).events
        # Only some providers send a status code if a policy caused the bounce.
        assert describe(report).removesuffix(" 5.7.1") == effect
        if effect != "ignored" and (provider, kind) != ("resend", "unsubscribed"):
            assert report.delivery_id == DELIVERY_ID  # type: ignore[union-attr]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("proof", ["missing", "invalid", "altered", "old"])
def test_sandbox_posts_requests_without_a_valid_proof(
    senders_app: FastAPI, senders_app_url: str, intake: Intake, provider: str, proof: str
) -> None:
    content = {"events": [{"kind": "opened"}], "proof": proof}
    post(senders_app, f"/{provider}/events", intake, **content)
    [request] = intake.requests
    assert not is_accepted(adapter_of(provider, senders_app_url), request, senders_app)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_sandbox_posts_events_repeatedly_in_reverse_order_and_late(
    senders_app: FastAPI, senders_app_url: str, intake: Intake, provider: str
) -> None:
    late = "2026-01-02T03:04:05Z"
    events = [{"kind": "delivered"}, {"kind": "opened", "occurred_at": late}]
    content = {"events": events, "times": 2, "is_reversed": True}
    post(senders_app, f"/{provider}/events", intake, **content)
    adapter = adapter_of(provider, senders_app_url)
    reports = [
        report for request in intake.requests for report in parse(adapter, request.body).events
    ]
    effects = [describe(report) for report in reports]
    if provider in ("sendgrid", "brevo"):
        assert len(intake.requests) == 2
        assert effects == ["opened", "delivered"] * 2
    else:
        assert len(intake.requests) == 4
        assert effects == ["opened", "opened", "delivered", "delivered"]
    assert reports[0].occurred_at == datetime.fromisoformat(late)


def test_sandbox_asks_for_the_confirmation_of_a_topic(
    senders_app: FastAPI, senders_app_url: str, intake: Intake
) -> None:
    adapter = adapter_of("ses", senders_app_url)
    for message_type, change in (
        ("SubscriptionConfirmation", TopicChange.CONFIRM),
        ("UnsubscribeConfirmation", TopicChange.UNSUBSCRIBED),
    ):
        intake.requests.clear()
        content = {"type": message_type, "signature_version": "1"}
        assert post(senders_app, "/ses/topic-changes", intake, **content) == [202]
        [request] = intake.requests
        assert is_accepted(adapter, request, senders_app)
        parsed_body = parse(adapter, request.body)
        assert parsed_body.topic_change is change
        assert parsed_body.warnings == {"sns_signature_v1"}
        if token := parsed_body.confirmation_token:
            assert confirm_subscription(TOPIC_ARN, token, f"{senders_app_url}/senders/sns")
    confirmed_topics = call_app(senders_app, "GET", "/senders/sns/confirmed").json()
    assert confirmed_topics == [TOPIC_ARN]


def test_sandbox_posts_reports_in_the_generic_form(senders_app: FastAPI, intake: Intake) -> None:
    events = [
        {"kind": kind, "email": ADDRESS, "delivery_id": DELIVERY_ID if kind == "opened" else None}
        for kind in EFFECTS
    ]
    secret = call_app(senders_app, "GET", "/senders/keys").json()["resend"]
    post(senders_app, "/generic/events", intake, events=events, secret=secret)
    [request] = intake.requests
    assert request.headers["webhook-signature"].startswith("v1,")
    reports = json.loads(request.body)["data"]["reports"]
    assert [report["kind"] for report in reports].count("bounced") == 3
    assert [report.get("delivery_id", report.get("email")) for report in reports] == [
        event["delivery_id"] or ADDRESS for event in events
    ]


def test_sandbox_page_posts_a_report(senders_app: FastAPI, intake: Intake) -> None:
    page = call_app(senders_app, "GET", "/senders").text
    assert TOPIC_ARN in page
    form = {"url": intake.url, "provider": "postmark", "kind": "hard_bounce", "secret": SECRET}
    answer = call_app(senders_app, "POST", "/senders", data={**form, "delivery_id": DELIVERY_ID})
    assert "Pressroom responded with 202." in answer.text
    assert "HardBounce" in answer.text
    [request] = intake.requests
    assert is_accepted(PostmarkAdapter(), request, senders_app)
    form |= {"secret": ""}
    assert call_app(senders_app, "POST", "/senders", data=form).status_code == 422


def test_sandbox_replaces_amazon_unless_the_user_has_chosen_a_server() -> None:
    settings = build_sandbox_settings("http://127.0.0.1:4000", {})
    assert settings["PRESSROOM_SNS_BASE_URL"] == "http://127.0.0.1:4000/senders/sns"
    chosen = {"PRESSROOM_SNS_BASE_URL": "http://127.0.0.1:1"}
    assert "PRESSROOM_SNS_BASE_URL" not in build_sandbox_settings("http://x", chosen)


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1/senders/7/events", "http://example.com/", "file:///etc/passwd"]
)
def test_sandbox_posts_only_to_this_machine(senders_app: FastAPI, url: str) -> None:
    body = {"url": url, "events": [{"kind": "opened"}]}
    assert call_app(senders_app, "POST", "/senders/ses/events", json=body).status_code == 422
