"""The frame of the console's pages: their templates, and headers that allow our own files alone."""

import shlex
from collections.abc import Mapping

from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from api.console import console_display
from api.console.assets import asset_path
from api.console.navigation import (
    NAVIGATION,
    OF_OPERATORS,
    OF_PROGRAMS,
    current_mark,
    of_list,
)

_ALLOWED = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    # The empty icon is a data: URL, so that browsers don't ask for one.
    "img-src": "'self' data:",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # Our own server is told, so that a form's request has its origin.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "X-Robots-Tag": "noindex",
}
_NOTHING: Mapping[str, str] = {}

_TEMPLATES = Environment(
    loader=PackageLoader(__package__),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals |= {
    "asset": asset_path,
    "navigation": NAVIGATION,
    "current_mark": current_mark,
    "of_list": of_list,
    "of_programs": OF_PROGRAMS,
    "of_operators": OF_OPERATORS,
    "curl_call": console_display.curl_call,
    "counted": console_display.counted,
    # Each page gives its own.
    "notice": None,
    "path": "",
    "base": "",
}
_TEMPLATES.filters |= {
    "number": console_display.number,
    "signed": console_display.signed,
    "moment": console_display.moment,
    "day": console_display.day,
    "amount": console_display.amount,
    "duration": console_display.duration,
    "shell": shlex.join,
}


def console_part(template: str, values: Mapping[str, object]) -> str:
    """A part of a page, as markup; each value is escaped."""
    return _TEMPLATES.get_template(template).render(values)


def console_page(
    template: str,
    values: Mapping[str, object],
    *,
    status: int = 200,
    foreign: Mapping[str, str] = _NOTHING,
) -> Response:
    """A page of the console; each value is escaped.

    Args:
        foreign: what the page shows of other origins, by the directive that allows it.
    """
    names = dict.fromkeys((*_ALLOWED, *foreign))
    policy = "; ".join(
        f"{name} {_ALLOWED.get(name, '')} {foreign.get(name, '')}".strip() for name in names
    )
    headers = {**_HEADERS, "Content-Security-Policy": policy}
    return HTMLResponse(console_part(template, values), status, headers=headers)
