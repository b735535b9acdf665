"""The frame of every page: its style, and headers that allow no content but our own.

A page's URL acts for the person to whom it was mailed, so the headers keep it out of caches, search
engines and the ``Referer`` of other sites.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from jinja2 import Environment, PackageLoader

from core.languages.reader_languages import ENGLISH
from core.languages.reader_templates import templates_in


def _own(name: str) -> tuple[str, str]:
    """The text of a file that pages have in them, and its hash for the policy."""
    text = files(__package__).joinpath(name).read_text()
    return text, base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_STYLE, _STYLE_HASH = _own("style.css")
_SCRIPT, _SCRIPT_HASH = _own("passkeys.js")

_POLICY = "Content-Security-Policy"
_NOTHING: Mapping[str, str] = {}
_ALLOWED = {
    "default-src": "'none'",
    "style-src": f"'sha256-{_STYLE_HASH}'",
    # The empty icon is a data: URL, so that browsers don't ask for one.
    "img-src": "data:",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
}


def _policy(more: Mapping[str, str]) -> str:
    """What a page allows always, and more by directive."""
    names = dict.fromkeys((*_ALLOWED, *more))
    allowed = {name: f"{_ALLOWED.get(name, '')} {more.get(name, '')}".strip() for name in names}
    return "; ".join(f"{name} {sources}" for name, sources in allowed.items())


HEADERS = {
    _POLICY: _policy(_NOTHING),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Robots-Tag": "noindex",
}


@cache
def _templates(language: str) -> Environment:
    templates = templates_in(language, PackageLoader(__package__, ""))
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
    """A page from its template; each value is escaped.

    Args:
        language: of a page for readers; owners' and operators' pages are English.
        form_targets: the other origins to which a form on the page may lead in the end.
        scripted: whether the page has the script of passkeys, and may run it.
        foreign: what the page shows of other origins, by the directive that allows it.
    """
    more = {**foreign, "form-action": form_targets}
    if scripted:
        more["script-src"] = f"{more.get('script-src', '')} 'sha256-{_SCRIPT_HASH}'"
    headers = {**HEADERS, _POLICY: _policy(more), "Content-Language": language}
    values["scripted"] = scripted
    text = fragment(template, language=language, **values)
    return HTMLResponse(text, status, headers=headers)


def fragment(template: str, *, language: str = ENGLISH, **values: object) -> str:
    """HTML that is no page, for another page; each value is escaped."""
    return _templates(language).get_template(template).render(values)


def short_answer(text: str) -> Response:
    """A line of text, for programs that only look at the status."""
    return PlainTextResponse(f"{text}\n", headers=HEADERS)


def see_other(query: str) -> Response:
    """Redirect to the same page with this query, by GET, so that a reload repeats no write."""
    # Relative, so that it is right below any path that a proxy puts us.
    return redirect(f"?{query}")


def redirect(address: str) -> Response:
    """Redirect there, by GET."""
    return Response(status_code=303, headers={**HEADERS, "Location": address})
