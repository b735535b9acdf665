"""Openverse (api.openverse.org), without an account.

It has no endpoint that counts downloads: a photo's ``detail_url`` takes that place. It is in every
result of the search, it is asked once for each use, and its reply has the file's ``url`` beside the
licence and the credit that the licence asks for.
"""

import re
from typing import Any

from core.errors.composer import STOCKPHOTO_ENDPOINT_NOT_ALLOWED
from integrations.stock_photos import port
from integrations.stock_photos.exchange import Exchange, QuotaReport
from integrations.stock_photos.port import FoundPhoto, Photo, PhotoProviderName, inside

# Larger pages are refused without an account. Every page then has this size, so none is skipped.
_MAX_PAGE_PHOTOS = 20
_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# The names of licences that are not called "CC" and their own name.
_LICENCES = {"cc0": "CC0", "pdm": "Public Domain Mark"}


class Openverse:
    name = PhotoProviderName.OPENVERSE

    def __init__(self, base: str, report: QuotaReport) -> None:
        self.origin = base
        self.image_origins: tuple[str, ...] = (port.origin_of(base),)
        # Its terms ask clients to say who they are.
        self._exchange = Exchange(self.name, base, {"User-Agent": "Pressroom"}, report)
        self._endpoint = re.compile(rf"{re.escape(base)}/v1/images/(?P<id>{_ID})/", re.ASCII)

    def search(self, query: str, *, page: int, limit: int) -> str:
        size = min(limit, _MAX_PAGE_PHOTOS)
        params: dict[str, str | int] = {"q": query, "page": page, "page_size": size}
        return self._exchange.get("/v1/images/", params)[0]

    def found_in(self, payload: str) -> list[FoundPhoto]:
        return port.photos_in(payload, self._found)

    def photo_at(self, endpoint: str) -> Photo:
        if match := self._endpoint.fullmatch(endpoint):
            return Photo(match["id"])
        raise STOCKPHOTO_ENDPOINT_NOT_ALLOWED()

    def download_url(self, photo: Photo) -> str:
        return self._exchange.file_url(f"/v1/images/{photo.id}/", {})

    def _found(self, photo: Any) -> FoundPhoto | None:
        endpoint = inside(photo, "detail_url")
        small_url = port.web_url(inside(photo, "thumbnail"))
        licence = port.text_of(inside(photo, "license"))
        if not isinstance(endpoint, str) or not self._endpoint.fullmatch(endpoint):
            return None
        # Without its licence nobody may use it.
        if not small_url or not licence or port.origin_of(small_url) not in self.image_origins:
            return None
        title = port.text_of(inside(photo, "title"))
        version = port.text_of(inside(photo, "license_version"))
        licence = _LICENCES.get(licence, f"CC {licence.upper()}")
        credit = port.PhotoCredit(
            author=port.text_of(inside(photo, "creator")) or "an unknown author",
            author_url=port.web_url(inside(photo, "creator_url")),
            title=title or "Photo",
            title_url=port.web_url(inside(photo, "foreign_landing_url")),
            licence=f"{licence} {version}" if version else licence,
            licence_url=port.web_url(inside(photo, "license_url")),
        )
        width = port.side_of(photo, "width")
        height = port.side_of(photo, "height")
        return FoundPhoto(endpoint, small_url, width, height, title or "", credit)
