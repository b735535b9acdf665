"""The frame of the console's pages: templates, and headers that allow our own files alone."""

import shlex
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.console import console_display
from api.console.assets import asset_path
from api.console.console_display import FILTER_MATCHES
from api.console.navigation import (
    NAVIGATION,
    OF_ACCOUNT,
    OF_DEVELOPERS,
    OF_OPERATORS,
    current_mark,
    of_list,
)
from api.html.content_policy import build_policy
from api.html.frame import HEADERS
from api.html.problems import ErrorDetails, describe_error
from core.errors.requests import REQUEST_INVALID
from core.settings import Settings

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
# Our own server gets the referrer, so that a form's request has its origin.
_HEADERS = {**HEADERS, "Referrer-Policy": "same-origin"}
_NOTHING: Mapping[str, str] = {}

_CONSOLE = Path(__file__).parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(
        # The pages of the account share parts of forms with those that need no login.
        [*sorted(_CONSOLE.glob("**/templates")), _CONSOLE.parent / "html" / "templates"]
    ),
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
    "filter_matches": FILTER_MATCHES,
    "of_account": OF_ACCOUNT,
    "of_developers": OF_DEVELOPERS,
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
    "amount": console_display.credits_text,
    "field_value": console_display.field_value,
    "duration": console_display.duration,
    "shell": shlex.join,
}


def console_part(template: str, values: Mapping[str, object]) -> str:
    """Render a part of a page, as markup; each value is escaped."""
    return _TEMPLATES.get_template(template).render(values)


def console_page(
    template: str,
    values: Mapping[str, object],
    *,
    status: int = 200,
    other_sources: Mapping[str, str] = _NOTHING,
) -> Response:
    """Render a page of the console; each value is escaped.

    ``other_sources``: the other origins of which the page shows something, by directive.
    """
    headers = {**_HEADERS, "Content-Security-Policy": build_policy(_ALLOWED, other_sources)}
    return HTMLResponse(console_part(template, values), status, headers=headers)


_NOT_FOUND = ("There is nothing here", "It is gone, or it was never yours.")
_OUR_FAULT = ("Something went wrong here", "We’re sorry. Please try again in a few minutes.")


def console_problem(settings: Settings, problem: ErrorDetails) -> Response:
    status = problem.status
    # A word where the paths of our pages have an id.
    is_no_path = problem.code == REQUEST_INVALID.code and problem.message.startswith("path.")
    if status == HTTPStatus.NOT_FOUND or is_no_path:
        # All alike, so that the page of another owner's thing tells nothing of it.
        status, (heading, text) = HTTPStatus.NOT_FOUND, _NOT_FOUND
    elif status == HTTPStatus.INTERNAL_SERVER_ERROR:
        heading, text = _OUR_FAULT
    else:
        heading, text = describe_error(problem.code) or ("Failed", problem.message)
    number = problem.request_id if problem.is_server_error else None
    values = {"base": settings.public_base, "heading": heading, "text": text, "number": number}
    return console_page("console_problem.html", values, status=status)
