"""The sandbox's own pages, and the providers mounted below them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from importlib.resources import files

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse

from devstack.sandbox.providers import MAILBOX, PROVIDERS, STRIPE, SandboxProvider
from devstack.sandbox.smtp_server import smtp_server


def create_app(
    providers: tuple[SandboxProvider, ...] = PROVIDERS, smtp_port: int | None = None
) -> FastAPI:
    """The sandbox. With a port for SMTP it takes mail, too, while it runs."""

    @asynccontextmanager
    async def with_mail(_: FastAPI) -> AsyncIterator[None]:
        if smtp_port is None:
            yield
        else:
            async with smtp_server(MAILBOX, smtp_port):
                yield
        await STRIPE.sender.close()

    app = FastAPI(title="Pressroom sandbox", docs_url=None, redoc_url=None, lifespan=with_mail)
    page, style = _page(providers), _file("style.css")

    @app.get("/", response_class=HTMLResponse)
    async def overview() -> str:
        return page

    @app.get("/style.css")
    async def stylesheet() -> Response:
        return Response(style, media_type="text/css")

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    for provider in providers:
        app.include_router(provider.router, prefix=provider.path)
    return app


def _page(providers: tuple[SandboxProvider, ...]) -> str:
    listed = "".join(map(_entry, providers))
    content = f"<ul>{listed}</ul>" if listed else "<p>No provider has moved in yet.</p>"
    return _file("overview.html").replace("{{ providers }}", content)


def _entry(provider: SandboxProvider) -> str:
    name = escape(provider.name)
    if provider.page is not None:
        name = f'<a href="{escape(provider.page)}">{name}</a>'
    return (
        f"<li><h3>{name}</h3><p>{escape(provider.stands_for)}</p>"
        f"<p>Base path: <code>{escape(provider.path)}</code></p></li>"
    )


def _file(name: str) -> str:
    return (files("devstack.sandbox") / name).read_text(encoding="utf-8")
