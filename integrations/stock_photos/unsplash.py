"""Unsplash (unsplash.com/documentation).

Its rules: photos are shown from Unsplash's own URLs, each use is reported to the photo's
``download_location`` with the ``ixid`` that the search gave, and the photographer is named.
"""

import re
from typing import Any

from pydantic import SecretStr

from core.errors.composer import STOCKPHOTO_ENDPOINT_NOT_ALLOWED
from integrations.stock_photos import port
from integrations.stock_photos.exchange import Exchange, QuotaReport
from integrations.stock_photos.port import FoundPhoto, Photo, PhotoProviderName, inside

_ID = r"[A-Za-z0-9_-]{1,64}"
_IXID = r"[A-Za-z0-9_=-]{1,512}"
# Its pictures, and those of its paid photos.
_IMAGES = ("https://images.unsplash.com", "https://plus.unsplash.com")
_HOME = "https://unsplash.com/"
# Its rules ask for these in links to it.
_REFERRAL = "utm_source=pressroom&utm_medium=referral"


class Unsplash:
    name = PhotoProviderName.UNSPLASH

    def __init__(self, base: str, access_key: SecretStr, report: QuotaReport) -> None:
        self.origin = base
        self.image_origins: tuple[str, ...] = (*_IMAGES, port.origin_of(base))
        authorization = f"Client-ID {access_key.get_secret_value()}"
        headers = {"Authorization": authorization, "Accept-Version": "v1"}
        self._exchange = Exchange(self.name, base, headers, report)
        # The whole string: nothing is decoded, folded or resolved, so nothing can be hidden in it.
        path = rf"/photos/(?P<id>{_ID})/download(?:\?ixid=(?P<ixid>{_IXID}))?"
        self._endpoint = re.compile(re.escape(base) + path, re.ASCII)

    def search(self, query: str, *, page: int, limit: int) -> str:
        params: dict[str, str | int] = {"query": query, "page": page, "per_page": limit}
        return self._exchange.get("/search/photos", params)[0]

    def found_in(self, payload: str) -> list[FoundPhoto]:
        return port.photos_in(payload, self._found)

    def photo_at(self, endpoint: str) -> Photo:
        if match := self._endpoint.fullmatch(endpoint):
            return Photo(match["id"], match["ixid"] or "")
        raise STOCKPHOTO_ENDPOINT_NOT_ALLOWED()

    def download_url(self, photo: Photo) -> str:
        params: dict[str, str | int] = {"ixid": photo.mark} if photo.mark else {}
        return self._exchange.file_url(f"/photos/{photo.id}/download", params)

    def _found(self, photo: Any) -> FoundPhoto | None:
        endpoint = inside(photo, "links", "download_location")
        small_url = port.web_url(inside(photo, "urls", "small"))
        author = port.text_of(inside(photo, "user", "name"))
        if not isinstance(endpoint, str) or not self._endpoint.fullmatch(endpoint):
            return None
        if not small_url or not author or port.origin_of(small_url) not in self.image_origins:
            return None
        described = (inside(photo, "alt_description"), inside(photo, "description"))
        shows = next(filter(None, map(port.text_of, described)), "")
        credit = port.PhotoCredit(
            author=author,
            author_url=_referred(port.web_url(inside(photo, "user", "links", "html"))),
            provider="Unsplash",
            provider_url=_referred(_HOME),
        )
        width = port.side_of(photo, "width")
        height = port.side_of(photo, "height")
        return FoundPhoto(endpoint, small_url, width, height, shows, credit)


def _referred(url: str | None) -> str | None:
    return url and f"{url}{'&' if '?' in url else '?'}{_REFERRAL}"
