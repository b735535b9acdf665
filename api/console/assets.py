"""Serves the style sheet and the scripts of the console.

The URL of each file contains a hash of the content, so that browsers can cache the file for a year.
A changed file gets a new URL, so browsers never use an outdated file.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import PurePath
from typing import Self

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.auth.requirements import UNLIMITED
from api.route_classes import ThreadedRoute
from core.errors.requests import ROUTE_NOT_FOUND

CONSOLE_PATH = "/console"
ASSETS_PATH = f"{CONSOLE_PATH}/assets"
# Matches ``gzip`` without a weight, as browsers accept it.
_GZIP = re.compile(r"(?:^|,)\s*gzip\s*(?:,|$)", re.IGNORECASE | re.ASCII)
_CACHE_FOR_A_YEAR = "public, max-age=31536000, immutable"
_MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
# Maps the name of each style sheet or script to its source files. A style sheet or script consists
# of its concatenated source files.
_SOURCES = {
    # The console's style sheet extends the style sheet of all other pages.
    "console.css": (("api.html", "style.css"), ("api.console", "static/console.css")),
    "uploads.js": (("api.console", "static/uploads.js"),),
    "images.js": (("api.console", "static/images.js"),),
    "finder.js": (("api.console", "static/finder.js"),),
    "pages.js": (("api.console", "static/pages.js"),),
    "passkeys.js": (("api.html", "passkeys.js"),),
    "htmx.js": (("api.console", "static/vendored/htmx.js"),),
    "htmx-sse.js": (("api.console", "static/vendored/htmx-sse.js"),),
}

assets_router = APIRouter(
    dependencies=[UNLIMITED], include_in_schema=False, route_class=ThreadedRoute
)


@dataclass(frozen=True)
class Asset:
    content: bytes
    media_type: str
    served_name: str

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.content, mtime=0)

    @classmethod
    def load(cls, name: str, sources: tuple[tuple[str, str], ...]) -> Self:
        """Join several source files into one style sheet or script."""
        content = b"\n".join(
            files(package).joinpath(path).read_bytes() for package, path in sources
        )
        digest = hashlib.sha256(content).hexdigest()[:16]
        path = PurePath(name)
        return cls(content, _MEDIA_TYPES[path.suffix], f"{path.stem}.{digest}{path.suffix}")


_ASSETS: Mapping[str, Asset] = {
    name: Asset.load(name, sources) for name, sources in _SOURCES.items()
}
ASSETS_BY_SERVED_NAME: Mapping[str, Asset] = {
    asset.served_name: asset for asset in _ASSETS.values()
}


def get_asset_path(name: str) -> str:
    return f"{ASSETS_PATH}/{_ASSETS[name].served_name}"


@assets_router.get(f"{ASSETS_PATH}/{{name}}")
async def serve_asset(request: Request, name: str) -> Response:
    """Serve a style sheet or script.

    During an upgrade, a page of one release may load a style sheet from an API process of another
    release. Each API process serves only the style sheets and scripts of its own release. If the
    hash in the URL doesn't match the content, the response must not be cached.
    """
    asset = ASSETS_BY_SERVED_NAME.get(name)
    cache_control = _CACHE_FOR_A_YEAR
    if asset is None:
        path = PurePath(name)
        asset = _ASSETS.get(f"{path.stem.partition('.')[0]}{path.suffix}")
        cache_control = "no-store"
    if asset is None:
        raise ROUTE_NOT_FOUND()
    headers = {"Cache-Control": cache_control, "Vary": "Accept-Encoding"}
    if not _GZIP.search(request.headers.get("accept-encoding", "")):
        return Response(asset.content, media_type=asset.media_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(asset.compressed, media_type=asset.media_type, headers=headers)
