"""Posts reports to Pressroom in the format of each mail provider.

A script, or a person on the sandbox's page ``/senders``, chooses the reports to post.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Form, HTTPException
from fastapi.responses import HTMLResponse, Response
from pydantic import AnyHttpUrl, BaseModel, Field, field_validator

from devstack import LOOPBACK_HOSTS
from devstack.sandbox import render
from devstack.sandbox.senders import amazon_sns, signed_requests
from devstack.sandbox.senders.amazon_sns import TOPIC_ARN, SnsServer
from devstack.sandbox.senders.mail_events import EventKind, MailEvent, ProviderName
from devstack.sandbox.senders.signed_requests import (
    ProofVariant,
    ProviderKeys,
    ProviderRequest,
    RequestPlan,
)

if TYPE_CHECKING:
    import httpx2

MAX_EVENTS = 1_000
_TIMEOUT_SECONDS = 30.0


class Posting(BaseModel):
    """The options for posting reports to the URL of a sender.

    A sender is a source of reports, such as a mail provider. An owner registers senders.

    Attributes:
        url: the URL in Pressroom that receives the sender's reports.
        secret: the sender's secret, or ``None`` for the sandbox's secret for the provider.
        is_compressed: whether the bodies are compressed with gzip.
        times: how often each request is posted.
        is_reversed: whether the events are posted in reverse order.
    """

    url: AnyHttpUrl
    secret: str | None = None
    topic_arn: str = TOPIC_ARN
    signature_version: Literal["1", "2"] = "2"
    proof: ProofVariant = ProofVariant.VALID
    is_compressed: bool = False
    times: int = Field(default=1, ge=1, le=10)
    is_reversed: bool = False

    @field_validator("url")
    @classmethod
    def _is_local(cls, value: AnyHttpUrl) -> AnyHttpUrl:
        # The sandbox must never send requests to other machines.
        if value.host not in LOOPBACK_HOSTS:
            raise ValueError("must have the host 127.0.0.1 or localhost")
        return value

    def plan(self, provider: ProviderName) -> RequestPlan:
        return RequestPlan(
            provider,
            self.secret,
            self.topic_arn,
            self.signature_version,
            self.proof,
            self.is_compressed,
        )


class EventPosting(Posting):
    events: list[MailEvent] = Field(min_length=1, max_length=MAX_EVENTS)


class TopicPosting(Posting):
    """The options for posting a message of Amazon SNS about a sender's subscription to a topic.

    Attributes:
        outages: how many of Pressroom's attempts to confirm the subscription fail.
    """

    type: Literal["SubscriptionConfirmation", "UnsubscribeConfirmation"]
    outages: int = Field(default=0, ge=0, le=100)


class PostedForm(Posting):
    """The fields of the sandbox's form at ``/senders``, which posts one event to Pressroom."""

    provider: ProviderName
    kind: EventKind
    email: str = "ada@example.org"
    delivery_id: str = ""
    age_days: float = Field(default=0, ge=0, le=3_650)


@dataclass(frozen=True)
class PostedRequest:
    """The status is 0 if there was no response."""

    body: str
    status: int


def build_router(sns: SnsServer, prefix: str) -> APIRouter:
    router = APIRouter()
    keys = ProviderKeys(sns)

    @router.post("/{provider}/events")
    async def post_events(provider: ProviderName, posting: EventPosting) -> dict[str, list[int]]:
        posted_requests = await _post_events(keys, provider, posting, posting.events)
        return {"statuses": [request.status for request in posted_requests]}

    @router.post("/ses/topic-changes")
    async def post_topic_change(posting: TopicPosting) -> dict[str, list[int]]:
        plan = posting.plan(ProviderName.SES)
        request = keys.build_topic_change(plan, posting.type, outages=posting.outages)
        posted_requests = await _post(posting, [request])
        return {"statuses": [request.status for request in posted_requests]}

    @router.get("/keys")
    async def list_keys() -> dict[str, str]:
        return _list_keys(keys)

    @router.get("", response_class=HTMLResponse)
    async def show_form() -> str:
        return _render_page(keys, prefix, [])

    @router.post("", response_class=HTMLResponse)
    async def post_form(form: Annotated[PostedForm, Form()]) -> Response:
        needs_secret = form.provider.value not in _list_keys(keys)
        if needs_secret and not form.secret:
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "Enter the sender's secret.")
        event = MailEvent(
            kind=form.kind,
            email=form.email,
            delivery_id=form.delivery_id or None,
            occurred_at=datetime.now(UTC) - timedelta(days=form.age_days),
        )
        posted_requests = await _post_events(keys, form.provider, form, [event])
        return HTMLResponse(_render_page(keys, prefix, posted_requests, form))

    router.include_router(amazon_sns.build_router(sns), prefix="/sns")
    return router


async def _post_events(
    keys: ProviderKeys, provider: ProviderName, posting: Posting, events: Sequence[MailEvent]
) -> list[PostedRequest]:
    ordered_events = events[::-1] if posting.is_reversed else events
    return await _post(posting, keys.build_requests(posting.plan(provider), ordered_events))


async def _post(posting: Posting, requests: Sequence[ProviderRequest]) -> list[PostedRequest]:
    # Import the HTTP library only here, because the library takes megabytes of memory.
    import httpx2

    async with httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False) as client:
        return [
            PostedRequest(
                request.body.decode(errors="replace"),
                await _send(client, str(posting.url), request),
            )
            for request in requests
            for _ in range(posting.times)
        ]


async def _send(client: "httpx2.AsyncClient", url: str, request: ProviderRequest) -> int:
    import httpx2

    headers = {"content-type": "application/json"} | request.headers
    try:
        response = await client.post(url, content=request.body, headers=headers)
    except httpx2.HTTPError:
        return 0
    return response.status_code


def _list_keys(keys: ProviderKeys) -> dict[str, str]:
    return {
        "ses": TOPIC_ARN,
        "mailgun": signed_requests.MAILGUN_SIGNING_KEY,
        "sendgrid": keys.sendgrid_public_key,
        "resend": signed_requests.RESEND_SIGNING_SECRET,
    }


def _render_page(
    keys: ProviderKeys,
    prefix: str,
    posted_requests: Sequence[PostedRequest],
    form: PostedForm | None = None,
) -> str:
    return render(
        "senders/senders.html",
        prefix=prefix,
        providers=list(ProviderName),
        kinds=list(EventKind),
        proofs=list(ProofVariant),
        keys=_list_keys(keys),
        posted_requests=posted_requests,
        form=form,
    )
