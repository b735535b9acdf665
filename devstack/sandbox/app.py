"""The sandbox's own pages, and the providers mounted below them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from devstack import LOOPBACK_HOSTS
from devstack.sandbox import status_page
from devstack.sandbox.providers import MAILBOX, PROVIDERS, STRIPE, SandboxProvider
from devstack.sandbox.smtp_server import smtp_server
from devstack.sandbox.status_figures import MetricsSource, StatusFigures
from devstack.sandbox.templates import render

_STYLE = Path(__file__).with_name("style.css")


def create_app(
    providers: tuple[SandboxProvider, ...] = PROVIDERS,
    smtp_port: int | None = None,
    sources: tuple[MetricsSource, ...] = (),
) -> FastAPI:
    """The sandbox. With a port for SMTP it takes mail, too, while it runs.

    Args:
        sources: of the metrics that it shows.
    """

    @asynccontextmanager
    async def with_mail(_: FastAPI) -> AsyncIterator[None]:
        if smtp_port is None:
            yield
        else:
            async with smtp_server(MAILBOX, smtp_port):
                yield
        await STRIPE.sender.close()

    app = FastAPI(title="Pressroom sandbox", docs_url=None, redoc_url=None, lifespan=with_mail)
    # A foreign page may give its own host name our address (DNS rebinding), and would read mails.
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

    app.include_router(status_page.make_router(StatusFigures(sources)))
    for provider in providers:
        app.include_router(provider.router, prefix=provider.path)
    return app
