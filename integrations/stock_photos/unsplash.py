"""An adapter for stock photos from Unsplash (unsplash.com/documentation).

Unsplash requires that pages load photos from its own URLs and name the photographer, so Pressroom
must not store copies. Each use of a photo must be reported to its ``download_location``, with the
``ixid`` from the search.
"""

import re
from typing import Any

from pydantic import SecretStr

from core.errors.composer import STOCKPHOTO_COPIES_FORBIDDEN, STOCKPHOTO_ENDPOINT_NOT_ALLOWED
from integrations.stock_photos import port
from integrations.stock_photos.exchange import Exchange, QuotaReport
from integrations.stock_photos.port import FoundPhoto, Photo, PhotoProviderName, get_nested

_ID = r"[A-Za-z0-9_-]{1,64}"
_IXID = r"[A-Za-z0-9_=-]{1,512}"
# The origins from which Unsplash serves free photos and paid photos.
_IMAGE_ORIGINS = ("https://images.unsplash.com", "https://plus.unsplash.com")
_HOME_URL = "https://unsplash.com/"
# The parameters that Unsplash requires in links to its pages.
_REFERRAL_PARAMETERS = "utm_source=pressroom&utm_medium=referral"


class Unsplash:
    name = PhotoProviderName.UNSPLASH
    allows_copies = False

    def __init__(self, base: str, access_key: SecretStr, report: QuotaReport) -> None:
        self.origin = base
        self.image_origins: tuple[str, ...] = (*_IMAGE_ORIGINS, port.get_origin(base))
        authorization = f"Client-ID {access_key.get_secret_value()}"
        headers = {"Authorization": authorization, "Accept-Version": "v1"}
        self._exchange = Exchange(self.name, base, headers, report)
        # Match the endpoint URL without decoding it, so that an encoded path can't bypass the
        # pattern.
        path = rf"/photos/(?P<id>{_ID})/download(?:\?ixid=(?P<ixid>{_IXID}))?"
        self._endpoint = re.compile(re.escape(base) + path, re.ASCII)

    def search(self, query: str, *, page: int, limit: int) -> str:
        params: dict[str, str | int] = {"query": query, "page": page, "per_page": limit}
        return self._exchange.get("/search/photos", params)[0]

    def parse_photos(self, payload: str) -> list[FoundPhoto]:
        return port.parse_results(payload, self._parse_photo)

    def parse_endpoint(self, endpoint: str) -> Photo:
        if match := self._endpoint.fullmatch(endpoint):
            return Photo(match["id"], match["ixid"] or "")
        raise STOCKPHOTO_ENDPOINT_NOT_ALLOWED()

    def download_url(self, photo: Photo) -> str:
        params: dict[str, str | int] = {"ixid": photo.mark} if photo.mark else {}
        return self._exchange.fetch_file_url(f"/photos/{photo.id}/download", params)

    def download_copy(self, photo: Photo) -> bytes:
        raise STOCKPHOTO_COPIES_FORBIDDEN(provider="Unsplash")

    def _parse_photo(self, photo: Any) -> FoundPhoto | None:
        endpoint = get_nested(photo, "links", "download_location")
        small_url = port.parse_web_url(get_nested(photo, "urls", "small"))
        author = port.parse_text(get_nested(photo, "user", "name"))
        if not isinstance(endpoint, str) or not self._endpoint.fullmatch(endpoint):
            return None
        if not small_url or not author or port.get_origin(small_url) not in self.image_origins:
            return None
        descriptions = (get_nested(photo, "alt_description"), get_nested(photo, "description"))
        shows = next(filter(None, map(port.parse_text, descriptions)), "")
        credit = port.PhotoCredit(
            author=author,
            author_url=_add_referral(
                port.parse_web_url(get_nested(photo, "user", "links", "html"))
            ),
            provider="Unsplash",
            provider_url=_add_referral(_HOME_URL),
        )
        width = port.parse_side(photo, "width")
        height = port.parse_side(photo, "height")
        return FoundPhoto(endpoint, small_url, width, height, shows, credit)


def _add_referral(url: str | None) -> str | None:
    return url and f"{url}{'&' if '?' in url else '?'}{_REFERRAL_PARAMETERS}"
