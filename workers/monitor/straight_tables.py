"""Flower's tables with their headers above their columns.

Its script has a table scroll below a header that is a table of its own, whose columns are as wide
as they were before the first rows came. One table for both can't get out of step; the card around
it scrolls instead.
"""

from pathlib import Path

import flower
from flower.views import BaseHandler

_STATIC = Path(flower.__file__).parent / "static"
_APART = "scrollX: true,"
_STYLE = """
.workers-table-card, .tasks-table-card { overflow-x: auto; }
"""


def script() -> str:
    return (_STATIC / "js" / "flower.js").read_text().replace(_APART, "")


def style() -> str:
    return (_STATIC / "css" / "flower.css").read_text() + _STYLE


class _Served(BaseHandler):  # type: ignore[misc]
    def initialize(self, content_type: str, text: str) -> None:
        self._content_type, self._text = content_type, text

    def get(self) -> None:
        self.set_header("Content-Type", self._content_type)
        # The page's URL of it names a hash of Flower's own text.
        self.set_header("Cache-Control", "no-cache")
        self.finish(self._text)


HANDLERS = [
    (r"/static/js/flower\.js", _Served, {"content_type": "text/javascript", "text": script()}),
    (r"/static/css/flower\.css", _Served, {"content_type": "text/css", "text": style()}),
]
