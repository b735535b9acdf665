"""Openverse (api.openverse.org), without an account.

It has no endpoint that counts downloads: a photo's ``detail_url`` takes that place. It is in every
result of the search, it is asked once for each use, and its reply has the file's ``url`` beside the
licence and the credit that the licence asks for.
"""

import re

from core.refusals.composer import STOCKPHOTO_ENDPOINT_NOT_ALLOWED
from integrations.stock_photos.exchange import Exchange, QuotaReport
from integrations.stock_photos.port import Photo, PhotoProviderName

# Larger pages are refused without an account. Every page then has this size, so none is skipped.
_MAX_PAGE_PHOTOS = 20
_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


class Openverse:
    name = PhotoProviderName.OPENVERSE

    def __init__(self, base: str, report: QuotaReport) -> None:
        self.origin = base
        # Its terms ask clients to say who they are.
        self._exchange = Exchange(self.name, base, {"User-Agent": "Pressroom"}, report)
        self._endpoint = re.compile(rf"{re.escape(base)}/v1/images/(?P<id>{_ID})/", re.ASCII)

    def search(self, query: str, *, page: int, limit: int) -> str:
        size = min(limit, _MAX_PAGE_PHOTOS)
        params: dict[str, str | int] = {"q": query, "page": page, "page_size": size}
        return self._exchange.get("/v1/images/", params)[0]

    def photo_at(self, endpoint: str) -> Photo:
        if match := self._endpoint.fullmatch(endpoint):
            return Photo(match["id"])
        raise STOCKPHOTO_ENDPOINT_NOT_ALLOWED()

    def download_url(self, photo: Photo) -> str:
        return self._exchange.file_url(f"/v1/images/{photo.id}/", {})
