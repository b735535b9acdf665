"""The frame of every page: its looks, and headers that let nothing in or out that isn't ours.

A page's address speaks for the person it was mailed to, so it is kept nowhere and told to nobody.
"""

import base64
import hashlib
from functools import lru_cache
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


def page(template: str, *, status: int = 200, form_targets: str = "", **values: object) -> Response:
    """A page from its template; each value is escaped.

    ``form_targets``: where else a form of it may lead in the end.
    """
    headers = {**HEADERS, _POLICY: f"{HEADERS[_POLICY]} {form_targets}".strip()}
    return HTMLResponse(_templates().get_template(template).render(values), status, headers=headers)


def short_answer(text: str) -> Response:
    """For programs, which look at the status alone."""
    return PlainTextResponse(f"{text}\n", headers=HEADERS)


def see_other(query: str) -> Response:
    """Show the same address anew, by GET and with this query: a reload repeats nothing."""
    # Relative, so that it holds below whatever path a proxy puts us.
    return Response(status_code=303, headers={**HEADERS, "Location": f"?{query}"})


def redirect(address: str) -> Response:
    """Go on there, by GET."""
    return Response(status_code=303, headers={**HEADERS, "Location": address})


@lru_cache(maxsize=1)
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["style"] = _STYLE
    return templates
