"""Builds the sandbox's web app with an overview, a status page and a router for each provider."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.responses import FileResponse, HTMLResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from devstack import LOOPBACK_HOSTS
from devstack.sandbox import (
    challenges,
    hooks,
    listmonk,
    llm,
    mailbox,
    render,
    resend,
    sandbox_settings,
    status,
    stock_photos,
)
from devstack.sandbox.hooks import HookBox
from devstack.sandbox.mailbox import Mailbox, run_smtp_server
from devstack.sandbox.senders import posting
from devstack.sandbox.senders.amazon_sns import SnsServer
from devstack.sandbox.status import MetricsSource, StatusFigures
from devstack.sandbox.stripe.objects import StripeKeys
from devstack.sandbox.stripe.pages import StripeServer

_STYLESHEET = Path(__file__).with_name("style.css")
MAILBOX = Mailbox()
STRIPE = StripeServer(StripeKeys())


@dataclass(frozen=True)
class SandboxProvider:
    """A stand-in for an external service, such as a mail server or Stripe.

    Attributes:
        name: the heading of the provider on the overview page, such as "Stock photos".
        path: the path of the provider's router, such as ``/mail``.
        page: the path of the stand-in's web page, for example the mailbox, or ``None``.
    """

    name: str
    path: str
    stands_for: str
    router: APIRouter
    page: str | None = None


PROVIDERS: tuple[SandboxProvider, ...] = (
    SandboxProvider(
        name="Mail",
        path="/mail",
        stands_for="Takes mail over SMTP and shows it in a mailbox instead of delivering it.",
        router=mailbox.build_router(MAILBOX),
        page="/mail",
    ),
    SandboxProvider(
        name="Resend",
        path=sandbox_settings.RESEND_PREFIX,
        stands_for="Sends a mail through Resend's API, and shows the mail in the mailbox.",
        router=resend.build_router(MAILBOX),
    ),
    SandboxProvider(
        name="listmonk",
        path=sandbox_settings.LISTMONK_PREFIX,
        stands_for="Sends transactional mails through listmonk's API, and shows the mails in the "
        "mailbox.",
        router=listmonk.build_router(MAILBOX),
    ),
    SandboxProvider(
        name="Webhooks",
        path=sandbox_settings.HOOKS_PREFIX,
        stands_for="Receives the events that Pressroom sends to webhook endpoints, checks their "
        "signatures and shows them. URL parameters make the receiver fail.",
        router=hooks.build_router(HookBox(), sandbox_settings.HOOKS_PREFIX),
        page=sandbox_settings.HOOKS_PREFIX,
    ),
    SandboxProvider(
        name="Senders",
        path=sandbox_settings.SENDERS_PREFIX,
        stands_for="Posts reports of seven mail providers to Pressroom, with right and wrong "
        "signatures, and serves the certificates of Amazon SNS.",
        router=posting.build_router(SnsServer(), sandbox_settings.SENDERS_PREFIX),
        page=sandbox_settings.SENDERS_PREFIX,
    ),
    SandboxProvider(
        name="Bot challenges",
        path=sandbox_settings.CHALLENGES_PREFIX,
        stands_for="Checks tokens like Turnstile, hCaptcha and reCAPTCHA. The token decides "
        "whether the check passes.",
        router=challenges.build_router(),
        page=sandbox_settings.CHALLENGES_PREFIX,
    ),
    SandboxProvider(
        name="Payments",
        path=sandbox_settings.STRIPE_PREFIX,
        stands_for="Simulates Stripe's checkout pages, signed webhooks, refunds and disputes. No "
        "money moves.",
        router=STRIPE.build_router(),
        page=sandbox_settings.STRIPE_PREFIX,
    ),
    SandboxProvider(
        name="Language model",
        path=sandbox_settings.LLM_PREFIX,
        stands_for="Answers chat completions like OpenAI, with sentences from the post. Some model "
        "names cause errors.",
        router=llm.build_router(),
        page=sandbox_settings.LLM_PREFIX,
    ),
    SandboxProvider(
        name="Unsplash stock photos",
        path=sandbox_settings.UNSPLASH_PREFIX,
        stands_for="Searches and downloads like Unsplash, with generated pictures. Some search "
        "words cause errors.",
        router=stock_photos.build_unsplash_router(),
    ),
    SandboxProvider(
        name="Openverse stock photos",
        path=sandbox_settings.OPENVERSE_PREFIX,
        stands_for="Searches like Openverse without an account, with generated pictures.",
        router=stock_photos.build_openverse_router(),
    ),
)


def create_app(
    providers: tuple[SandboxProvider, ...] = PROVIDERS,
    smtp_port: int | None = None,
    sources: tuple[MetricsSource, ...] = (),
) -> FastAPI:
    """Return the sandbox's web app, which also receives mail by SMTP if ``smtp_port`` is set."""

    @asynccontextmanager
    async def run_smtp(_: FastAPI) -> AsyncIterator[None]:
        if smtp_port is None:
            yield
        else:
            async with run_smtp_server(MAILBOX, smtp_port):
                yield
        await STRIPE.sender.close()

    app = FastAPI(title="Pressroom sandbox", docs_url=None, redoc_url=None, lifespan=run_smtp)
    # Accept only loopback host names, so that other websites can't read mails through DNS
    # rebinding.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK_HOSTS))

    @app.get("/", response_class=HTMLResponse)
    async def overview() -> str:
        return render("overview.html", providers=providers)

    @app.get("/style.css")
    async def stylesheet() -> FileResponse:
        return FileResponse(_STYLESHEET)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    app.include_router(status.build_router(StatusFigures(sources)))
    for provider in providers:
        app.include_router(provider.router, prefix=provider.path)
    return app
