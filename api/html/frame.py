"""The frame of every page: its style, and headers that allow no content but our own.

A page's URL acts for the person to whom it was mailed, so the headers keep it out of caches, search
engines and the ``Referer`` of other sites.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from jinja2 import Environment, FileSystemLoader

from core.languages.reader_languages import ENGLISH, create_templates
from services.subscriptions import colours
from services.subscriptions.branding import Look


def _digest(text: str) -> str:
    """Return the hash by which a policy allows an inlined style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_STYLE = files(__package__).joinpath("style.css").read_text()
_SCRIPT = files(__package__).joinpath("passkeys.js").read_text()

_POLICY = "Content-Security-Policy"
_NOTHING: Mapping[str, str] = {}
_ALLOWED = {
    "default-src": "'none'",
    "style-src": f"'{_digest(_STYLE)}'",
    # The empty icon is a data: URL, so that browsers don't ask for one.
    "img-src": "data:",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
}


def policy(allowed: Mapping[str, str], more: Mapping[str, str]) -> str:
    """Return the ``Content-Security-Policy`` that allows both, by directive."""
    names = dict.fromkeys((*allowed, *more))
    found = {name: f"{allowed.get(name, '')} {more.get(name, '')}".strip() for name in names}
    return "; ".join(f"{name} {sources}" for name, sources in found.items())


HEADERS = {
    _POLICY: policy(_ALLOWED, _NOTHING),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Robots-Tag": "noindex",
}


# The frame's own templates first.
_API = Path(__file__).parents[1]
_FOLDERS = [
    _API / "html" / "templates",
    _API / "sign_up" / "templates",
    *sorted(_API.glob("pages/*/templates")),
]


@cache
def _templates(language: str) -> Environment:
    templates = create_templates(language, FileSystemLoader(_FOLDERS))
    templates.globals.update(style=_STYLE, script=_SCRIPT)
    return templates


def page(
    template: str,
    *,
    language: str = ENGLISH,
    status: int = 200,
    form_targets: str = "",
    scripted: bool = False,
    foreign: Mapping[str, str] = _NOTHING,
    **values: object,
) -> Response:
    """Render a page; each value is escaped.

    Args:
        language: of a page for readers; owners' and operators' pages are English.
        form_targets: other origins to which a form on the page may redirect.
        scripted: the page has the script of passkeys, and may run it.
        foreign: other origins of which the page shows something, by directive.
    """
    more = {**foreign, "form-action": form_targets}
    if scripted:
        more["script-src"] = f"{more.get('script-src', '')} '{_digest(_SCRIPT)}'"
    headers = {**HEADERS, _POLICY: policy(_ALLOWED, more), "Content-Language": language}
    values["scripted"] = scripted
    text = fragment(template, language=language, **values)
    return HTMLResponse(text, status, headers=headers)


def fragment(template: str, *, language: str = ENGLISH, **values: object) -> str:
    """Render a part of another page; each value is escaped."""
    return _templates(language).get_template(template).render(values)


def short_answer(text: str) -> Response:
    """Return a line of text, for programs that only look at the status."""
    return PlainTextResponse(f"{text}\n", headers=HEADERS)


def see_other(query: str) -> Response:
    """Redirect to the same page with this query, by GET, so that a reload repeats no write."""
    # Relative, so that it is right below any path that a proxy puts us.
    return redirect(f"?{query}")


def redirect(address: str) -> Response:
    return Response(status_code=303, headers={**HEADERS, "Location": address})


def list_page(
    template: str,
    look: Look,
    *,
    language: str,
    foreign: Mapping[str, str] = _NOTHING,
    **values: object,
) -> Response:
    """Render a page with the list's colour and logo; the other values are those of ``page``."""
    style = _list_style(look)
    more = dict(foreign)
    if style:
        more["style-src"] = f"{more.get('style-src', '')} '{_digest(style)}'".strip()
    if look.logo_url:
        parts = urlsplit(look.logo_url)
        more["img-src"] = f"{parts.scheme}://{parts.netloc}"
    return page(
        template,
        language=language,
        foreign=more,
        own_style=style,
        logo_url=look.logo_url,
        **values,  # type: ignore[arg-type] # some are parameters of its own
    )


def list_style_sources(look: Look) -> str:
    """Return what a page that shows a page of the list in itself allows as ``style-src``."""
    return f"'{_digest(_STYLE)}' '{_digest(_list_style(look))}'"


def _list_style(look: Look) -> str:
    """Return the custom properties of style.css that have another value on pages of the list."""
    if look.colour is None:
        return ""
    dark = colours.lighten_for_dark_mode(look.colour)
    in_light = _properties(look.colour, colours.darken_colour(look.colour), "#fff")
    in_dark = _properties(dark, colours.lighten_colour(dark), colours.DARK_INK)
    return f"{in_light} @media (prefers-color-scheme: dark) {{ {in_dark} }}"


def _properties(accent: str, deep: str, on_accent: str) -> str:
    return f":root {{ --accent: {accent}; --deep: {deep}; --on-accent: {on_accent}; }}"
