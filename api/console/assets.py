"""The console's style and scripts: files that browsers keep for a year under names with their hash.

A file that changes has another name, so a page never loads the file of another release.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePath

CONSOLE_PATH = "/console"
ASSETS_PATH = f"{CONSOLE_PATH}/assets"
_MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
# Each file by the name that templates give it, with the files of which it is made.
_SOURCES = {
    # The console looks as the other pages do, and adds to their style.
    "console.css": (("api.pages", "style.css"), ("api.console", "console.css")),
    "uploads.js": (("api.console", "uploads.js"),),
    "images.js": (("api.console", "images.js"),),
    "finder.js": (("api.console", "finder.js"),),
    "htmx.js": (("api.console", "vendored/htmx.js"),),
    "htmx-sse.js": (("api.console", "vendored/htmx-sse.js"),),
}


@dataclass(frozen=True)
class Asset:
    content: bytes
    media_type: str
    # With a part of the content's hash.
    served_name: str


def _load(name: str, sources: tuple[tuple[str, str], ...]) -> Asset:
    content = b"\n".join(files(room).joinpath(path).read_bytes() for room, path in sources)
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = PurePath(name)
    return Asset(content, _MEDIA_TYPES[path.suffix], f"{path.stem}.{digest}{path.suffix}")


_ASSETS: Mapping[str, Asset] = {name: _load(name, sources) for name, sources in _SOURCES.items()}
ASSETS_BY_SERVED_NAME: Mapping[str, Asset] = {each.served_name: each for each in _ASSETS.values()}


def asset_path(name: str) -> str:
    """The path of one of the files in ``_SOURCES``, for templates."""
    return f"{ASSETS_PATH}/{_ASSETS[name].served_name}"
