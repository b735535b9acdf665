"""The pages of one list, which look as its owner chose."""

import base64
import hashlib
from collections.abc import Mapping
from urllib.parse import urlsplit

from fastapi.responses import Response

from api.pages.frame import page
from services.mailing import looks
from services.mailing.looks import Look

_NOTHING: Mapping[str, str] = {}


def list_page(
    template: str,
    look: Look,
    *,
    language: str,
    foreign: Mapping[str, str] = _NOTHING,
    **values: object,
) -> Response:
    """A page with the list's colour and logo; the other values are those of ``page``."""
    style = _style_of(look)
    more = dict(foreign)
    if style:
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        more["style-src"] = f"{more.get('style-src', '')} 'sha256-{digest}'".strip()
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


def _style_of(look: Look) -> str:
    """The custom properties of style.css that have another value on pages of the list."""
    if look.colour is None:
        return ""
    dark = looks.for_dark_windows(look.colour)
    in_light = _properties(look.colour, looks.deeper(look.colour), "#fff")
    in_dark = _properties(dark, looks.lighter(dark), looks.DARK_INK)
    return f"{in_light} @media (prefers-color-scheme: dark) {{ {in_dark} }}"


def _properties(accent: str, deep: str, on_accent: str) -> str:
    return f":root {{ --accent: {accent}; --deep: {deep}; --on-accent: {on_accent}; }}"
