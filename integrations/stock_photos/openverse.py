"""An adapter for stock photos from Openverse (api.openverse.org), which needs no account.

Openverse has no endpoint for counting downloads, so the adapter calls a photo's ``detail_url`` once
per use. The reply of ``detail_url`` contains the URL of the file, the licence and the required
credit.
"""

import re
from typing import Any

from core.errors.composer import STOCKPHOTO_ENDPOINT_NOT_ALLOWED
from integrations.stock_photos import port
from integrations.stock_photos.exchange import Exchange, QuotaReport
from integrations.stock_photos.port import FoundPhoto, Photo, PhotoProviderName, get_nested

# The maximum number of photos per page that Openverse returns without an account. A larger page
# size in a request is reduced to this maximum. The page numbers are converted to the reduced page
# size, so that no photos are skipped.
_MAX_PAGE_PHOTOS = 20
_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# The names of licences that don't consist of "CC" and the licence's code.
_LICENCE_NAMES = {"cc0": "CC0", "pdm": "Public Domain Mark"}


class Openverse:
    name = PhotoProviderName.OPENVERSE
    allows_copies = True

    def __init__(self, base: str, report: QuotaReport) -> None:
        self.origin = base
        self.image_origins: tuple[str, ...] = (port.get_origin(base),)
        # Openverse requires clients to identify themselves.
        self._exchange = Exchange(self.name, base, {"User-Agent": "Pressroom"}, report)
        self._endpoint = re.compile(rf"{re.escape(base)}/v1/images/(?P<id>{_ID})/", re.ASCII)

    def search(self, query: str, *, page: int, limit: int) -> str:
        size = min(limit, _MAX_PAGE_PHOTOS)
        params: dict[str, str | int] = {"q": query, "page": page, "page_size": size}
        return self._exchange.get("/v1/images/", params)[0]

    def parse_photos(self, payload: str) -> list[FoundPhoto]:
        return port.parse_results(payload, self._parse_photo)

    def parse_endpoint(self, endpoint: str) -> Photo:
        if match := self._endpoint.fullmatch(endpoint):
            return Photo(match["id"])
        raise STOCKPHOTO_ENDPOINT_NOT_ALLOWED()

    def download_url(self, photo: Photo) -> str:
        return self._exchange.fetch_file_url(f"/v1/images/{photo.id}/", {})

    def download_copy(self, photo: Photo) -> bytes:
        # Download the photo through Openverse instead of from the site that hosts the photo,
        # because a request to an arbitrary URL could reach a private network.
        path = f"/v1/images/{photo.id}/thumb/"
        return self._exchange.fetch_file(path, {"full_size": "true", "compressed": "true"})

    def _parse_photo(self, photo: Any) -> FoundPhoto | None:
        endpoint = get_nested(photo, "detail_url")
        small_url = port.parse_web_url(get_nested(photo, "thumbnail"))
        licence = port.parse_text(get_nested(photo, "license"))
        if not isinstance(endpoint, str) or not self._endpoint.fullmatch(endpoint):
            return None
        # Skip photos without a licence, because nobody may use them.
        if not small_url or not licence or port.get_origin(small_url) not in self.image_origins:
            return None
        title = port.parse_text(get_nested(photo, "title"))
        version = port.parse_text(get_nested(photo, "license_version"))
        licence = _LICENCE_NAMES.get(licence, f"CC {licence.upper()}")
        credit = port.PhotoCredit(
            author=port.parse_text(get_nested(photo, "creator")) or "an unknown author",
            author_url=port.parse_web_url(get_nested(photo, "creator_url")),
            title=title or "Photo",
            title_url=port.parse_web_url(get_nested(photo, "foreign_landing_url")),
            licence=f"{licence} {version}" if version else licence,
            licence_url=port.parse_web_url(get_nested(photo, "license_url")),
        )
        width = port.parse_side(photo, "width")
        height = port.parse_side(photo, "height")
        return FoundPhoto(endpoint, small_url, width, height, title or "", credit)
