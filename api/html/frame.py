"""Renders HTML pages with a common style sheet and strict security headers.

Anyone with the URL of a page behind a link in a mail can act for the mail's recipient. The security
headers keep this URL out of caches, search engines and ``Referer`` headers.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from jinja2 import Environment, FileSystemLoader
from jinja2.runtime import Macro

from api.html.content_policy import build_policy, hash_source
from core.languages.reader_languages import ENGLISH, create_templates, load_translations
from services.subscriptions import colours
from services.subscriptions.branding import Look

_API_FOLDER = Path(__file__).parents[1]
# If several folders contain a template of the same name, the first folder takes precedence.
_TEMPLATE_FOLDERS = [
    _API_FOLDER / "html" / "templates",
    _API_FOLDER / "sign_up" / "templates",
    *sorted(_API_FOLDER.glob("pages/*/templates")),
]
_STYLE = "".join(
    files(__package__).joinpath(name).read_text() for name in ("style.css", "reader.css")
)
_PASSKEY_SCRIPT = files(__package__).joinpath("passkeys.js").read_text()
_HYPHEN_OF_EMAIL = re.compile(r"(?<=\be)-(?=mail)", re.IGNORECASE)
_POLICY_HEADER = "Content-Security-Policy"
_NO_SOURCES: Mapping[str, str] = {}
_SOURCES = {
    "default-src": "'none'",
    "style-src": f"'{hash_source(_STYLE)}'",
    # Allow data URLs for images, because the page icon is an empty data URL. This icon stops
    # browsers from requesting an icon file.
    "img-src": "data:",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
}
HEADERS = {
    _POLICY_HEADER: build_policy(_SOURCES, _NO_SOURCES),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Robots-Tag": "noindex",
}


def render_page(
    template: str,
    *,
    language: str = ENGLISH,
    status: int = 200,
    form_targets: str = "",
    has_passkey_script: bool = False,
    other_sources: Mapping[str, str] = _NO_SOURCES,
    **values: object,
) -> Response:
    """Template values are escaped for HTML.

    Args:
        form_targets: the origins of other sites to which a form may redirect.
        other_sources: maps Content-Security-Policy directives to additional origins.
    """
    more_sources = {**other_sources, "form-action": form_targets}
    if has_passkey_script:
        script_sources = more_sources.get("script-src", "")
        more_sources["script-src"] = f"{script_sources} '{hash_source(_PASSKEY_SCRIPT)}'"
    headers = {
        **HEADERS,
        _POLICY_HEADER: build_policy(_SOURCES, more_sources),
        "Content-Language": language,
    }
    values["has_passkey_script"] = has_passkey_script
    text = render_in_layout(_load_templates(language), template, values, "base.html")
    return HTMLResponse(text, status, headers=headers)


def render_list_page(
    template: str,
    look: Look,
    *,
    language: str = ENGLISH,
    other_sources: Mapping[str, str] = _NO_SOURCES,
    **values: object,
) -> Response:
    """``values`` may contain keyword arguments of ``render_page``, such as ``status``."""
    style = _build_list_style(look)
    more_sources = dict(other_sources)
    if style:
        style_sources = more_sources.get("style-src", "")
        more_sources["style-src"] = f"{style_sources} '{hash_source(style)}'".strip()
    if look.logo_url:
        parts = urlsplit(look.logo_url)
        more_sources["img-src"] = f"{parts.scheme}://{parts.netloc}"
    return render_page(
        template,
        language=language,
        other_sources=more_sources,
        list_style=style,
        logo_url=look.logo_url,
        **values,  # type: ignore[arg-type] # some values are parameters of render_page
    )


def get_list_style_hashes(look: Look) -> str:
    """Return the ``style-src`` sources that a page needs to embed a list's page."""
    return f"'{hash_source(_STYLE)}' '{hash_source(_build_list_style(look))}'"


def _build_list_style(look: Look) -> str:
    if look.colour is None:
        return ""
    dark_accent = colours.lighten_for_dark_mode(look.colour)
    light_rule = _format_rule(look.colour, colours.darken_colour(look.colour), "#fff")
    dark_rule = _format_rule(dark_accent, colours.lighten_colour(dark_accent), colours.DARK_INK)
    return f"{light_rule} @media (prefers-color-scheme: dark) {{ {dark_rule} }}"


def _format_rule(accent: str, deep: str, on_accent: str) -> str:
    return f":root {{ --accent: {accent}; --deep: {deep}; --on-accent: {on_accent}; }}"


def render_fragment(template: str, *, language: str = ENGLISH, **values: object) -> str:
    return _load_templates(language).get_template(template).render(values)


@cache
def _load_templates(language: str) -> Environment:
    templates = create_templates(language, FileSystemLoader(_TEMPLATE_FOLDERS))
    translations = load_translations(language)
    templates.install_gettext_callables(  # type: ignore[attr-defined] # the extension adds it
        lambda text: _keep_on_one_line(translations.gettext(text)),
        lambda one, many, count: _keep_on_one_line(translations.ngettext(one, many, count)),
        newstyle=True,
    )
    optional = ("list_title", "list_url", "list_style", "logo_url", "is_reader_page", "footnote")
    templates.globals |= dict.fromkeys((*optional, "own_heading"))
    templates.globals |= dict.fromkeys(("page_title", "metadata", "footer"), "")
    templates.globals |= {"style": _STYLE, "script": _PASSKEY_SCRIPT}
    share_macros(templates, ("addresses.html", "form.html", "reader_form.html"))
    return templates


def render_in_layout(
    templates: Environment, template: str, values: Mapping[str, object], layout: str
) -> str:
    """Render a page's template, which contains only the body, and then the layout around it.

    The layout reads the body as ``main``, and the variables that the page's template sets, such as
    ``heading``. If a page sets a ``layout`` of its own, the given layout surrounds it.
    """
    body = templates.get_template(template).make_module({**values})
    page_values = vars(body)
    values = {**values, **page_values, "main": body}
    if "layout" in page_values:
        return render_in_layout(templates, page_values["layout"], values, layout)
    return templates.get_template(layout).render(values)


def share_macros(templates: Environment, names: Iterable[str]) -> None:
    """Let each template use the macros of the named templates without an import."""
    for name in names:
        macros = vars(templates.get_template(name).module)
        templates.globals |= {key: each for key, each in macros.items() if isinstance(each, Macro)}


def _keep_on_one_line(text: str) -> str:
    """Make the hyphen in the word "e-mail" non-breaking."""
    return _HYPHEN_OF_EMAIL.sub("\N{NON-BREAKING HYPHEN}", text)


def render_line(text: str) -> Response:
    """Return a line of plain text, for programs that check only the HTTP status."""
    return PlainTextResponse(f"{text}\n", headers=HEADERS)


def redirect_to_query(query: str) -> Response:
    """Redirect the browser with GET, so that reloading the page doesn't repeat a POST."""
    # A relative URL works even if a proxy serves the page under a different path.
    return redirect_to(f"?{query}")


def redirect_to(address: str) -> Response:
    return Response(status_code=303, headers={**HEADERS, "Location": address})
