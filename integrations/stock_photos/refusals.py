import re

from core.errors import DomainError, malformed, provider_failed

_URL = re.compile(r"https?://[^\s/]")


def endpoint_not_allowed() -> DomainError:
    return malformed(
        "stockphoto.endpoint_not_allowed",
        "query.endpoint must be a photo's download endpoint, as the search gave it.",
    )


def file_url_of(reply: dict[str, object]) -> str:
    """The URL of the photo's file in the reply of either provider."""
    url = reply.get("url")
    if not isinstance(url, str) or not _URL.match(url):
        raise provider_failed("stockphoto.failed", "The provider gave no usable answer.")
    return url
