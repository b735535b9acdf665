"""Redirects browsers to Pressroom's own pages, and never to another host."""

import re

from fastapi import Response

from api.html.frame import redirect_to
from api.state import State

# A local path consists of printable ASCII characters except backslashes, and starts with a single
# slash. A path that starts with two slashes would lead to another host. Browsers treat a backslash
# in a path like a slash.
_LOCAL_PATH = re.compile(r"/(?!/)[!-\[\]-~]{0,8000}\Z")


def read_local_path(value: object) -> str | None:
    return value if isinstance(value, str) and _LOCAL_PATH.match(value) else None


def redirect_to_path(state: State, path: str) -> Response:
    """Redirect to a path below Pressroom's public URL, regardless of the ``Host`` header."""
    return redirect_to(state.resources.settings.public_base + path)
