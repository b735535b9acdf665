"""Builds the sandbox, which has an overview, a status page and a router for each provider."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.responses import FileResponse, HTMLResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from devstack import LOOPBACK_HOSTS
from devstack.sandbox import challenges, hooks, llm, mailbox, render, status, stock_photos
from devstack.sandbox import sandbox_settings as at
from devstack.sandbox.hooks import HookBox
from devstack.sandbox.mailbox import Mailbox, smtp_server
from devstack.sandbox.status import MetricsSource, StatusFigures
from devstack.sandbox.stripe.objects import StripeKeys
from devstack.sandbox.stripe.pages import StripeServer


@dataclass(frozen=True)
class SandboxProvider:
    """A stand-in for a provider.

    Attributes:
        name: the heading of the provider on the overview, such as "Stock photos".
        path: the path at which the router is mounted, beginning with a slash.
        stands_for: a sentence about the protocol and what the sandbox does instead of the provider.
        router: the routes of the provider.
        page: the path of a page for browsers, such as a mailbox, if the provider has one.
    """

    name: str
    path: str
    stands_for: str
    router: APIRouter
    page: str | None = None


MAILBOX = Mailbox()
STRIPE = StripeServer(StripeKeys())
PROVIDERS: tuple[SandboxProvider, ...] = (
    SandboxProvider(
        name="Mail",
        path="/mail",
        stands_for="Takes mail over SMTP and shows it in a mailbox instead of delivering it.",
        router=mailbox.router(MAILBOX),
        page="/mail",
    ),
    SandboxProvider(
        name="Webhooks",
        path=at.HOOKS_PREFIX,
        stands_for="Receives the events that Pressroom sends to webhook endpoints, checks their "
        "signatures and shows them; words in the URL say what goes wrong.",
        router=hooks.make_router(HookBox(), at.HOOKS_PREFIX),
        page=at.HOOKS_PREFIX,
    ),
    SandboxProvider(
        name="Bot challenges",
        path=at.CHALLENGES_PREFIX,
        stands_for="Checks tokens as Turnstile, hCaptcha and reCAPTCHA do; tokens say in plain "
        "words whether they pass.",
        router=challenges.make_router(),
        page=at.CHALLENGES_PREFIX,
    ),
    SandboxProvider(
        name="Payments",
        path=at.STRIPE_PREFIX,
        stands_for="Speaks Stripe's protocol: checkout pages, signed webhooks, refunds and "
        "disputes, without any money.",
        router=STRIPE.router(),
        page=at.STRIPE_PREFIX,
    ),
    SandboxProvider(
        name="Language model",
        path=at.LLM_PREFIX,
        stands_for="Answers chat completions as OpenAI does, with sentences of the post; the "
        "model's name says what goes wrong.",
        router=llm.make_router(),
        page=at.LLM_PREFIX,
    ),
    SandboxProvider(
        name="Stock photos of Unsplash",
        path=at.UNSPLASH_PREFIX,
        stands_for="Searches and downloads as Unsplash does, with pictures that it draws; words of "
        "a search say what goes wrong.",
        router=stock_photos.unsplash_router(),
    ),
    SandboxProvider(
        name="Stock photos of Openverse",
        path=at.OPENVERSE_PREFIX,
        stands_for="Searches as Openverse does for callers without an account, with the same kind "
        "of pictures.",
        router=stock_photos.openverse_router(),
    ),
)


_STYLE = Path(__file__).with_name("style.css")


def create_app(
    providers: tuple[SandboxProvider, ...] = PROVIDERS,
    smtp_port: int | None = None,
    sources: tuple[MetricsSource, ...] = (),
) -> FastAPI:
    """Return the sandbox, which also receives mail if ``smtp_port`` is set."""

    @asynccontextmanager
    async def with_mail(_: FastAPI) -> AsyncIterator[None]:
        if smtp_port is None:
            yield
        else:
            async with smtp_server(MAILBOX, smtp_port):
                yield
        await STRIPE.sender.close()

    app = FastAPI(title="Pressroom sandbox", docs_url=None, redoc_url=None, lifespan=with_mail)
    # Refuse other host names. A foreign page could otherwise read mails by resolving its host name
    # to the loopback address (DNS rebinding).
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK_HOSTS))

    @app.get("/", response_class=HTMLResponse)
    async def overview() -> str:
        return render("overview.html", providers=providers)

    @app.get("/style.css")
    async def stylesheet() -> FileResponse:
        return FileResponse(_STYLE)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    app.include_router(status.make_router(StatusFigures(sources)))
    for provider in providers:
        app.include_router(provider.router, prefix=provider.path)
    return app
