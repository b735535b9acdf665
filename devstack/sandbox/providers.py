"""The sandbox's stand-ins for providers. Each new one adds its line to PROVIDERS."""

from dataclasses import dataclass

from fastapi import APIRouter

from devstack.sandbox import challenges, mailbox_pages, sandbox_settings
from devstack.sandbox.hooks import hook_pages
from devstack.sandbox.hooks.hook_box import HookBox
from devstack.sandbox.llm import router as llm_router
from devstack.sandbox.mailbox import Mailbox
from devstack.sandbox.stock_photos import openverse, unsplash
from devstack.sandbox.stripe.keys import StripeKeys
from devstack.sandbox.stripe.stripe_server import StripeServer


@dataclass(frozen=True)
class SandboxProvider:
    """One stand-in.

    Attributes:
        name: what it stands in for, as a heading: `Stock photos`.
        path: where its router is mounted, beginning with a slash.
        stands_for: one sentence: whose protocol it speaks and what it does instead.
        router: its routes.
        page: the path of its page for browsers, such as a mailbox; None when it has none.
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
        router=mailbox_pages.router(MAILBOX),
        page="/mail",
    ),
    SandboxProvider(
        name="Webhooks",
        path=sandbox_settings.HOOKS_PREFIX,
        stands_for="Receives the events that Pressroom sends to webhook endpoints, checks their "
        "signatures and shows them; words in the URL say what goes wrong.",
        router=hook_pages.make_router(HookBox(), sandbox_settings.HOOKS_PREFIX),
        page=sandbox_settings.HOOKS_PREFIX,
    ),
    SandboxProvider(
        name="Bot challenges",
        path=sandbox_settings.CHALLENGES_PREFIX,
        stands_for="Checks tokens as Turnstile, hCaptcha and reCAPTCHA do; tokens say in plain "
        "words whether they pass.",
        router=challenges.make_router(),
        page=sandbox_settings.CHALLENGES_PREFIX,
    ),
    SandboxProvider(
        name="Payments",
        path=sandbox_settings.STRIPE_PREFIX,
        stands_for="Speaks Stripe's protocol: checkout pages, signed webhooks, refunds and "
        "disputes, without any money.",
        router=STRIPE.router(),
        page=sandbox_settings.STRIPE_PREFIX,
    ),
    SandboxProvider(
        name="Language model",
        path=sandbox_settings.LLM_PREFIX,
        stands_for="Answers chat completions as OpenAI does, with sentences of the post; the "
        "model's name says what goes wrong.",
        router=llm_router.make_router(),
        page=sandbox_settings.LLM_PREFIX,
    ),
    SandboxProvider(
        name="Stock photos of Unsplash",
        path=sandbox_settings.UNSPLASH_PREFIX,
        stands_for="Searches and downloads as Unsplash does, with pictures that it draws; words of "
        "a search say what goes wrong.",
        router=unsplash.make_router(),
    ),
    SandboxProvider(
        name="Stock photos of Openverse",
        path=sandbox_settings.OPENVERSE_PREFIX,
        stands_for="Searches as Openverse does for callers without an account, with the same kind "
        "of pictures.",
        router=openverse.make_router(),
    ),
)
