"""The console's style and scripts: files that browsers keep for a year under names with their hash.

A file that changes has another name, so a page never loads the file of another release.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePath

from fastapi import APIRouter
from fastapi.responses import Response

from api.auth.requirements import UNLIMITED
from api.route_classes import ThreadedRoute
from core.errors.requests import ROUTE_NOT_FOUND

CONSOLE_PATH = "/console"
ASSETS_PATH = f"{CONSOLE_PATH}/assets"
_MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
# Each file by its name in templates, with its sources.
_SOURCES = {
    # The console looks as the other pages do, and adds to their style.
    "console.css": (("api.html", "style.css"), ("api.console", "static/console.css")),
    "uploads.js": (("api.console", "static/uploads.js"),),
    "images.js": (("api.console", "static/images.js"),),
    "finder.js": (("api.console", "static/finder.js"),),
    "passkeys.js": (("api.html", "passkeys.js"),),
    "htmx.js": (("api.console", "static/vendored/htmx.js"),),
    "htmx-sse.js": (("api.console", "static/vendored/htmx-sse.js"),),
}


@dataclass(frozen=True)
class Asset:
    """A file; its served name has a part of the content's hash."""

    content: bytes
    media_type: str
    served_name: str


def _load(name: str, sources: tuple[tuple[str, str], ...]) -> Asset:
    content = b"\n".join(files(package).joinpath(path).read_bytes() for package, path in sources)
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = PurePath(name)
    return Asset(content, _MEDIA_TYPES[path.suffix], f"{path.stem}.{digest}{path.suffix}")


_ASSETS: Mapping[str, Asset] = {name: _load(name, sources) for name, sources in _SOURCES.items()}
ASSETS_BY_SERVED_NAME: Mapping[str, Asset] = {each.served_name: each for each in _ASSETS.values()}


def asset_path(name: str) -> str:
    """Return the path of one of the files in ``_SOURCES``, for templates."""
    return f"{ASSETS_PATH}/{_ASSETS[name].served_name}"


assets_router = APIRouter(
    dependencies=[UNLIMITED], include_in_schema=False, route_class=ThreadedRoute
)

_FOR_A_YEAR = "public, max-age=31536000, immutable"


@assets_router.get(f"{ASSETS_PATH}/{{name}}")
async def serve_asset(name: str) -> Response:
    """Serve a style or script, which a browser keeps.

    During an upgrade a page may ask a process of the other release, which has another file under
    that name: it serves its own, and no browser keeps it.
    """
    found = ASSETS_BY_SERVED_NAME.get(name)
    kept = _FOR_A_YEAR
    if found is None:
        path = PurePath(name)
        try:
            own = asset_path(f"{path.stem.partition('.')[0]}{path.suffix}")
        except KeyError:
            raise ROUTE_NOT_FOUND() from None
        found, kept = ASSETS_BY_SERVED_NAME[PurePath(own).name], "no-store"
    return Response(found.content, media_type=found.media_type, headers={"Cache-Control": kept})
