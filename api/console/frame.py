"""Renders pages of the console.

Pages load files only from this server, unless ``other_sources`` allows more origins.
``other_sources`` maps Content-Security-Policy directives to additional origins.
"""

import shlex
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.console import console_display, task_labels
from api.console.assets import CONSOLE_PATH, get_asset_path
from api.console.console_display import FILTER_MATCHES
from api.console.navigation import build_navigation
from api.html.content_policy import build_policy
from api.html.frame import HEADERS, render_in_layout, share_macros
from api.html.problems import ErrorDetails, describe_error, find_next_page
from core.errors.requests import REQUEST_INVALID
from core.money import format_money
from core.settings import Settings

_SOURCES = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    # Allow data URLs for images, because the page icon is an empty data URL. Without a page icon,
    # browsers would request an icon file.
    "img-src": "'self' data:",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
}
# Let browsers send the ``Referer`` header to this server, because the CSRF check needs the origin
# of a form.
_HEADERS = {**HEADERS, "Referrer-Policy": "same-origin"}
_NO_SOURCES: Mapping[str, str] = {}

_NOT_FOUND_TEXTS = ("Page not found", "The page doesn’t exist, or it belongs to another account.")
_SERVER_ERROR_TEXTS = (
    "Something went wrong",
    "We’re sorry. Please try again in a few minutes.",
)

_CONSOLE_FOLDER = Path(__file__).parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(
        # The account pages use macros from the templates of pages without a login.
        [
            *sorted(_CONSOLE_FOLDER.glob("**/templates")),
            _CONSOLE_FOLDER.parent / "html" / "templates",
        ]
    ),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals |= {
    "asset": get_asset_path,
    "filter_matches": FILTER_MATCHES,
    "curl_call": console_display.build_curl_call,
    "counted": console_display.format_count,
    "share": console_display.format_share,
    # Default values of template variables.
    "navigation": build_navigation("", None, is_operator=False),
    "list": None,
    "notice": None,
    "path": "",
    "base": "",
    "console": CONSOLE_PATH,
    "pages": "",
    "docs_url": None,
    "page_script": None,
    "has_changing_parts": True,
    "back": None,
    "heading": None,
    "heading_link": None,
    "footnote": None,
    "footer": "",
    "inputs": "",
    "page_title": "",
}
_TEMPLATES.filters |= {
    "number": console_display.format_number,
    "file_size": console_display.format_file_size,
    "signed": console_display.format_change,
    "moment": console_display.display_moment,
    "dated": console_display.display_dated_moment,
    "day": console_display.format_day,
    "amount": console_display.format_credits,
    "money": format_money,
    "status": console_display.format_status,
    "field_value": console_display.format_field_value,
    "job_words": task_labels.describe_job,
    "task_words": task_labels.describe_task,
    "cause_words": task_labels.describe_cause,
    "first_sentence": task_labels.shorten_reason,
    "duration": console_display.format_duration,
    "sentence": console_display.format_sentence,
    "shell": shlex.join,
}
share_macros(_TEMPLATES, ("addresses.html", "parts.html", "forms.html"))


def render_console_part(template: str, values: Mapping[str, object]) -> str:
    """Render a part of a console page, with the values escaped for HTML."""
    return _TEMPLATES.get_template(template).render(values)


def render_console_page(
    template: str,
    values: Mapping[str, object],
    *,
    status: int = 200,
    other_sources: Mapping[str, str] = _NO_SOURCES,
) -> Response:
    headers = {**_HEADERS, "Content-Security-Policy": build_policy(_SOURCES, other_sources)}
    text = render_in_layout(_TEMPLATES, template, values, "console_base.html")
    return HTMLResponse(text, status, headers=headers)


def render_console_problem(settings: Settings, problem: ErrorDetails) -> Response:
    status = problem.status
    # The path contains text instead of a numeric id.
    is_invalid_path = problem.code == REQUEST_INVALID.code and problem.message.startswith("path.")
    if status == HTTPStatus.NOT_FOUND or is_invalid_path:
        # Show the same error page for missing records and other owners' records, so that nobody
        # learns which records exist.
        status = HTTPStatus.NOT_FOUND
        heading, text = _NOT_FOUND_TEXTS
    elif status == HTTPStatus.INTERNAL_SERVER_ERROR:
        heading, text = _SERVER_ERROR_TEXTS
    else:
        heading, text = describe_error(problem.code) or ("Request failed", problem.message)
    number = problem.request_id if problem.is_server_error else None
    values = {
        "base": settings.public_base,
        "console": f"{settings.public_base}{CONSOLE_PATH}",
        "heading": heading,
        "text": text,
        "number": number,
        "next_page": find_next_page(problem),
    }
    return render_console_page("console_problem.html", values, status=status)
