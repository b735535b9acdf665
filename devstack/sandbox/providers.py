"""Which providers live in the sandbox. Each one that moves in adds its line to PROVIDERS."""

from dataclasses import dataclass

from fastapi import APIRouter

from devstack.sandbox import challenges, llm_settings, mailbox_pages, stock_photo_settings
from devstack.sandbox.challenge_settings import SANDBOX_PREFIX
from devstack.sandbox.llm import router as llm_router
from devstack.sandbox.mailbox import Mailbox
from devstack.sandbox.payment_settings import SANDBOX_PREFIX as STRIPE_PREFIX
from devstack.sandbox.stock_photos import openverse, unsplash
from devstack.sandbox.stripe.keys import StripeKeys
from devstack.sandbox.stripe.server import StripeServer


@dataclass(frozen=True)
class SandboxProvider:
    """One stand-in.

    Attributes:
        name: what it stands in for, as a heading: `Stock photos`.
        path: where its router is mounted, beginning with a slash.
        stands_for: one sentence: whose protocol it speaks and what it does instead.
        router: its routes.
        page: the path of something to look at in a browser, such as a mailbox; or none.
    """

    name: str
    path: str
    stands_for: str
    router: APIRouter
    page: str | None = None


MAILBOX = Mailbox()
STRIPE = StripeServer(StripeKeys())


def payments(server: StripeServer) -> SandboxProvider:
    return SandboxProvider(
        name="Payments",
        path=STRIPE_PREFIX,
        stands_for="Speaks Stripe's protocol: checkout pages, signed webhooks, refunds and "
        "disputes, without any money.",
        router=server.router(),
        page=STRIPE_PREFIX,
    )


PROVIDERS: tuple[SandboxProvider, ...] = (
    SandboxProvider(
        name="Mail",
        path="/mail",
        stands_for="Takes mail over SMTP and shows it in a mailbox instead of delivering it.",
        router=mailbox_pages.router(MAILBOX),
        page="/mail",
    ),
    SandboxProvider(
        name="Bot challenges",
        path=SANDBOX_PREFIX,
        stands_for="Checks tokens as Turnstile, hCaptcha and reCAPTCHA do; tokens say in plain "
        "words whether they pass.",
        router=challenges.make_router(),
        page=SANDBOX_PREFIX,
    ),
    payments(STRIPE),
    SandboxProvider(
        name="Language model",
        path=llm_settings.SANDBOX_PREFIX,
        stands_for="Answers chat completions as OpenAI does, with sentences of the post; the "
        "model's name says what goes wrong.",
        router=llm_router.make_router(),
        page=llm_settings.SANDBOX_PREFIX,
    ),
    SandboxProvider(
        name="Stock photos of Unsplash",
        path=stock_photo_settings.UNSPLASH_PREFIX,
        stands_for="Searches and downloads as Unsplash does, with pictures that it draws; words of "
        "a search say what goes wrong.",
        router=unsplash.make_router(),
    ),
    SandboxProvider(
        name="Stock photos of Openverse",
        path=stock_photo_settings.OPENVERSE_PREFIX,
        stands_for="Searches as Openverse does for those without an account, with the same kind of "
        "pictures.",
        router=openverse.make_router(),
    ),
)
