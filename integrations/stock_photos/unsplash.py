"""Unsplash (unsplash.com/documentation).

Its rules: photos are shown from Unsplash's own URLs, each use is reported to the photo's
``download_location`` with the ``ixid`` that the search gave, and the photographer is named.
"""

import re

from pydantic import SecretStr

from core.refusals.composer import STOCKPHOTO_ENDPOINT_NOT_ALLOWED
from integrations.stock_photos.exchange import Exchange, QuotaReport, file_url_of
from integrations.stock_photos.port import Photo, PhotoProviderName

_ID = r"[A-Za-z0-9_-]{1,64}"
_IXID = r"[A-Za-z0-9_=-]{1,512}"


class Unsplash:
    name = PhotoProviderName.UNSPLASH

    def __init__(self, base: str, access_key: SecretStr, report: QuotaReport) -> None:
        self.origin = base
        self._exchange = Exchange(
            self.name,
            base,
            {
                "Authorization": f"Client-ID {access_key.get_secret_value()}",
                "Accept-Version": "v1",
            },
            report,
        )
        self._endpoint = endpoint_pattern(base)

    def search(self, query: str, *, page: int, limit: int) -> str:
        params: dict[str, str | int] = {"query": query, "page": page, "per_page": limit}
        return self._exchange.get("/search/photos", params)[0]

    def photo_at(self, endpoint: str) -> Photo:
        match = self._endpoint.fullmatch(endpoint)
        if match is None:
            raise STOCKPHOTO_ENDPOINT_NOT_ALLOWED()
        return Photo(match["id"], match["ixid"] or "")

    def download_url(self, photo: Photo) -> str:
        params: dict[str, str | int] = {"ixid": photo.mark} if photo.mark else {}
        _, reply = self._exchange.get(f"/photos/{photo.id}/download", params)
        return file_url_of(reply)


def endpoint_pattern(base: str) -> re.Pattern[str]:
    """The whole string: nothing is decoded, folded or resolved, so nothing can be hidden in it."""
    return re.compile(
        rf"{re.escape(base)}/photos/(?P<id>{_ID})/download(?:\?ixid=(?P<ixid>{_IXID}))?", re.ASCII
    )
