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
# Corrects the accessibility errors of Swagger UI: a skipped heading level, links inside of buttons,
# repeated landmarks, text outside of landmarks, select fields without a name, and code that the
# keyboard can't scroll. Swagger UI renders an operation when a reader opens the operation, so the
# script corrects the page after each change, at most once per drawn frame.
_CORRECT_PAGE = """
    const correctPage = () => {
      const change = (selector, action) =>
        document.querySelectorAll(`#swagger-ui ${selector}`).forEach(action);
      const nameRegion = (selector, name) => change(selector, each => {
        each.setAttribute("role", "region");
        each.setAttribute("aria-label", name);
      });
      nameRegion(".information-container", "About this API");
      nameRegion(".scheme-container", "Server and credentials");
      change("h3.opblock-tag", each => each.setAttribute("aria-level", 2));
      change("h4", each => each.setAttribute("aria-level", 3));
      change("h5", each => each.setAttribute("aria-level", 4));
      change("button a[href]", each => each.removeAttribute("href"));
      change("table[role=region]", each => each.removeAttribute("role"));
      change("pre:not([tabindex])", each => each.setAttribute("tabindex", 0));
      change("select:not([aria-label])", each => {
        const row = each.closest("tr");
        const parameter = row?.querySelector(".parameter__name")?.firstChild?.textContent;
        const label = each.id === "servers" ? "Server" : parameter ?? "Media type";
        each.setAttribute("aria-label", label);
      });
    };
    let isPlanned = false;
    const planCorrection = () => {
      if (isPlanned) return;
      isPlanned = true;
      requestAnimationFrame(() => { isPlanned = false; correctPage(); });
    };
    new MutationObserver(planCorrection)
      .observe(document.getElementById("swagger-ui"), {childList: true, subtree: true});
"""
# The links have relative paths, because a proxy may serve Pressroom's pages below a path prefix.
_LINKS = """
<nav class="back" aria-label="Pressroom">
<a href="console">Console</a>
<a href="./">Start page</a>
</nav>
"""
# On a phone, the description of a group of operations is shown below the group's name, because both
# don't fit into one line.
_STYLE = """
body { margin: 0; }
.back { max-width: 1460px; margin: 0 auto; padding: .5rem 1.25rem 0; font: 1rem sans-serif; }
.back a { display: inline-block; padding: .75rem 1rem .75rem 0; color: #2367a8; }
.dark-mode .back a { color: #9cc4f0; }
/* Swagger UI's own colours have too little contrast. */
.swagger-ui .info .title :is(small, small.version-stamp) { background: #4f5765; }
html:not(.dark-mode) .swagger-ui :is(.info a, .info .url, .info a.link) { color: #2367a8; }
html:not(.dark-mode) .swagger-ui .btn.authorize { border-color: #1a7048; color: #1a7048; }
html:not(.dark-mode) .swagger-ui .btn.authorize svg { fill: #1a7048; }
.swagger-ui :is(.parameter__in, .parameter__extension) { color: #5b5f66; }
.dark-mode .swagger-ui :is(.parameter__in, .parameter__extension, .header-col) { color: #c9cdd3; }
.swagger-ui .opblock .opblock-summary-method { color: #fff; text-shadow: none; }
.swagger-ui .opblock.opblock-get .opblock-summary-method { background: #2367a8; }
.swagger-ui .opblock.opblock-post .opblock-summary-method { background: #1a7048; }
.swagger-ui .opblock.opblock-put .opblock-summary-method { background: #8f5200; }
.swagger-ui .opblock.opblock-patch .opblock-summary-method { background: #0d6c62; }
.swagger-ui .opblock.opblock-delete .opblock-summary-method { background: #b3261e; }
.swagger-ui .microlight code span[style*="211, 99, 99"] { color: #f0a0a0 !important; }
.swagger-ui .btn.authorize, .swagger-ui .opblock .opblock-summary { min-height: 2.75rem; }
@media (max-width: 40rem) {
  .swagger-ui .opblock-tag { flex-wrap: wrap; }
  .swagger-ui .opblock-tag small { order: 1; flex: 1 0 100%; padding: 0; }
  .swagger-ui .opblock-tag > div:empty { display: none; }
  .swagger-ui .opblock-tag button { margin-left: auto; }
  .swagger-ui :is(.table-container, .responses-inner) { overflow-x: auto; }
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
        swagger_ui_parameters={
            # Close all groups of operations at first, because the list of all operations is very
            # long.
            "docExpansion": "none",
            # Hide the list of all schemas, because it makes the documentation page slow.
            "defaultModelsExpandDepth": -1,
        },
    )
    page = bytes(swagger_page.body)
    page = page.replace(b"<html>", b'<html lang="en">')
    page = page.replace(b"<script>", f"<script>{_SELECT_THEME}{_CORRECT_PAGE}".encode())
    page = page.replace(b'<div id="swagger-ui">', f'{_LINKS}<div id="swagger-ui">'.encode())
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
