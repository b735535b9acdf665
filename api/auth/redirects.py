"""Redirects to pages below our own address."""

import re

from fastapi import Response

from api.html.frame import redirect_to
from api.state import State

# Printable ASCII without the backslash, because browsers read a backslash as a slash. After two
# slashes at the start, browsers read the name of a host.
_OWN_PATH = re.compile(r"/(?!/)[!-\[\]-~]{0,8000}\Z")


def read_local_path(value: object) -> str | None:
    """Return the path to open after a login, or ``None`` if the path may lead to another host."""
    return value if isinstance(value, str) and _OWN_PATH.match(value) else None


def redirect_to_path(state: State, path: str) -> Response:
    """Redirect to a path below our own address, so that a request can't choose the host."""
    return redirect_to(state.resources.settings.public_base + path)
