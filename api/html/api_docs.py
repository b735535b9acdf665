"""The page that shows the API's document, with all that it loads: it works without a network."""

import base64
import hashlib
import re
from pathlib import Path

import fastapi_standalone_docs
from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

DOCS_PATH = "/docs"
DOCUMENT_PATH = "/openapi.json"
_FILES = Path(fastapi_standalone_docs.__path__[0]) / "static" / "swagger"


def add_docs(app: FastAPI) -> None:
    """Serve the page below ``/docs``. Its policy names its one inline script by a hash."""
    shown = get_swagger_ui_html(
        openapi_url=DOCUMENT_PATH,
        title=app.title,
        swagger_js_url=f"{DOCS_PATH}/swagger-ui-bundle.js",
        swagger_css_url=f"{DOCS_PATH}/swagger-ui.css",
        swagger_favicon_url="data:,",
        # Operations show the schemas that they have; a list of all makes the page slow.
        swagger_ui_parameters={"defaultModelsExpandDepth": -1},
    )
    page = bytes(shown.body)
    [script] = re.findall(b"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    headers = {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; "
            "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
            "form-action 'none'"
        ),
        "Cache-Control": "no-cache",
    }

    async def show_docs(_: Request) -> HTMLResponse:
        return HTMLResponse(page, headers=headers)

    app.add_route(DOCS_PATH, show_docs, include_in_schema=False)
    app.mount(DOCS_PATH, StaticFiles(directory=_FILES))
