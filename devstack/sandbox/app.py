"""The sandbox's own pages, and the providers mounted below them."""

from html import escape
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from devstack.sandbox.providers import PROVIDERS, Provider

_NONE_YET = (
    "<p>No provider has moved in yet. Until one does, Pressroom works with what it can do "
    "by itself, and with the providers that your settings name.</p>"
)


def create_app(providers: tuple[Provider, ...] = PROVIDERS) -> FastAPI:
    app = FastAPI(title="Pressroom sandbox", docs_url=None, redoc_url=None)
    page = _page(providers)

    @app.get("/", response_class=HTMLResponse)
    async def overview() -> str:
        return page

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    for provider in providers:
        app.include_router(provider.router, prefix=provider.path)
    return app


def _page(providers: tuple[Provider, ...]) -> str:
    template = (files("devstack.sandbox") / "overview.html").read_text(encoding="utf-8")
    listed = "".join(map(_entry, providers))
    return template.replace("{{ providers }}", f"<ul>{listed}</ul>" if listed else _NONE_YET)


def _entry(provider: Provider) -> str:
    name = escape(provider.name)
    if provider.page is not None:
        name = f'<a href="{escape(provider.page)}">{name}</a>'
    return (
        f"<li><h3>{name}</h3><p>{escape(provider.stands_for)}</p>"
        f"<p>Base path: <code>{escape(provider.path)}</code></p></li>"
    )
