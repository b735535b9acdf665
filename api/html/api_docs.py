"""Serves the API's documentation as a page that loads files only from this server."""

import re
from pathlib import Path

import fastapi_standalone_docs
from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles

from api.html.content_policy import hash_source

DOCS_PATH = "/docs"
DOCUMENT_PATH = "/openapi.json"
# Selects the dark theme of Swagger UI if the browser prefers dark pages, because Swagger UI doesn't
# do so by itself.
_SELECT_THEME = """
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const selectTheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
    dark.addEventListener("change", selectTheme);
    selectTheme();
"""
# On a phone, a group's description is shown below the group's name, because both don't fit into one
# line.
_STYLE = """
body { margin: 0; }
@media (max-width: 40rem) {
  .swagger-ui .opblock-tag { flex-wrap: wrap; }
  .swagger-ui .opblock-tag small { order: 1; flex: 1 0 100%; padding: 0; }
  .swagger-ui .opblock-tag > div:empty { display: none; }
  .swagger-ui .opblock-tag button { margin-left: auto; }
}
"""
_SWAGGER_FOLDER = Path(fastapi_standalone_docs.__path__[0]) / "static" / "swagger"


def add_docs(app: FastAPI) -> None:
    swagger_page = get_swagger_ui_html(
        openapi_url=DOCUMENT_PATH,
        title=app.title,
        swagger_js_url=f"{DOCS_PATH}/swagger-ui-bundle.js",
        swagger_css_url=f"{DOCS_PATH}/swagger-ui.css",
        swagger_favicon_url="data:,",
        # Hide the list of all schemas, because it makes the documentation page slow.
        swagger_ui_parameters={"defaultModelsExpandDepth": -1},
    )
    page = bytes(swagger_page.body)
    page = page.replace(b"<html>", b'<html lang="en">')
    page = page.replace(b"<script>", f"<script>{_SELECT_THEME}".encode())
    page = page.replace(b"</head>", f"<style>{_STYLE}</style></head>".encode())
    [script] = re.findall(b"<script>(.*?)</script>", page, re.DOTALL)
    headers = {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src 'self' '{hash_source(script.decode())}'; "
            f"style-src 'self' '{hash_source(_STYLE)}'; "
            "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
            "form-action 'none'"
        ),
        "Cache-Control": "no-cache",
    }

    async def show_docs(_: Request) -> HTMLResponse:
        return HTMLResponse(page, headers=headers)

    async def redirect_to_docs(_: Request) -> RedirectResponse:
        return RedirectResponse(DOCS_PATH)

    app.add_route(DOCS_PATH, show_docs, include_in_schema=False)
    # Redirect ``/redoc``, where FastAPI by default serves a second documentation page.
    app.add_route("/redoc", redirect_to_docs, include_in_schema=False)
    app.mount(DOCS_PATH, StaticFiles(directory=_SWAGGER_FOLDER))
