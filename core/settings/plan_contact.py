"""Parses the contact that owners ask for the paid plan."""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlsplit

_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9.-]*[A-Za-z0-9]\Z")
_URL = re.compile(r"https://[!-~]+\Z")


@dataclass(frozen=True)
class PlanContact:
    """An e-mail address or a web page where owners ask for the paid plan.

    Attributes:
        url: the URL to which pages link. For an address, the URL is a ``mailto:`` URI.
    """

    address: str | None
    url: str

    @classmethod
    def parse(cls, text: str) -> Self:
        if _ADDRESS.match(text):
            return cls(text, f"mailto:{quote(text, safe='@')}")
        if _URL.match(text) and _is_web_page(text):
            return cls(None, text)
        raise ValueError(
            "must be an ASCII e-mail address such as sales@example.com, or an https:// URL without "
            "a user and password"
        )


def _is_web_page(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        return False
