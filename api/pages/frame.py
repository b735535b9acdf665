"""The frame of every page: its style, and headers that allow no content but our own.

A page's URL acts for the person to whom it was mailed, so the headers keep it out of caches, search
engines and the ``Referer`` of other sites.
"""

import base64
import hashlib
from importlib.resources import files

from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

_STYLE = files(__package__).joinpath("style.css").read_text()
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_POLICY = "Content-Security-Policy"
HEADERS = {
    # The empty icon is a data: URL, so that browsers don't ask for one.
    _POLICY: (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Robots-Tag": "noindex",
}

_TEMPLATES = Environment(
    loader=PackageLoader(__package__, ""),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals["style"] = _STYLE


def page(template: str, *, status: int = 200, form_targets: str = "", **values: object) -> Response:
    """A page from its template; each value is escaped.

    ``form_targets``: the other origins to which a form on the page may lead in the end.
    """
    headers = {**HEADERS, _POLICY: f"{HEADERS[_POLICY]} {form_targets}".strip()}
    return HTMLResponse(_TEMPLATES.get_template(template).render(values), status, headers=headers)


def short_answer(text: str) -> Response:
    """A line of text, for programs that only look at the status."""
    return PlainTextResponse(f"{text}\n", headers=HEADERS)


def see_other(query: str) -> Response:
    """Redirect to the same page with this query, by GET, so that a reload repeats no write."""
    # Relative, so that it is right below any path that a proxy puts us.
    return Response(status_code=303, headers={**HEADERS, "Location": f"?{query}"})


def redirect(address: str) -> Response:
    """Redirect there, by GET."""
    return Response(status_code=303, headers={**HEADERS, "Location": address})
