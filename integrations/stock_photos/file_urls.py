import re

from core.refusals.composer import STOCKPHOTO_FAILED

_URL = re.compile(r"https?://[^\s/]")


def file_url_of(reply: dict[str, object]) -> str:
    """Where the file is, by the reply of either provider."""
    url = reply.get("url")
    if not isinstance(url, str) or not _URL.match(url):
        raise STOCKPHOTO_FAILED(provider="The provider")
    return url
