"""Unsplash (unsplash.com/documentation).

Its rules: photos are shown from Unsplash's own URLs, each use is reported to the photo's
``download_location`` with the ``ixid`` that the search gave, and the photographer is named.
"""

import re

from pydantic import SecretStr

from core.refusals.composer import STOCKPHOTO_ENDPOINT_NOT_ALLOWED
from integrations.stock_photos.exchange import Exchange, QuotaReport
from integrations.stock_photos.port import Photo, PhotoProviderName

_ID = r"[A-Za-z0-9_-]{1,64}"
_IXID = r"[A-Za-z0-9_=-]{1,512}"


class Unsplash:
    name = PhotoProviderName.UNSPLASH

    def __init__(self, base: str, access_key: SecretStr, report: QuotaReport) -> None:
        self.origin = base
        authorization = f"Client-ID {access_key.get_secret_value()}"
        headers = {"Authorization": authorization, "Accept-Version": "v1"}
        self._exchange = Exchange(self.name, base, headers, report)
        # The whole string: nothing is decoded, folded or resolved, so nothing can be hidden in it.
        path = rf"/photos/(?P<id>{_ID})/download(?:\?ixid=(?P<ixid>{_IXID}))?"
        self._endpoint = re.compile(re.escape(base) + path, re.ASCII)

    def search(self, query: str, *, page: int, limit: int) -> str:
        params: dict[str, str | int] = {"query": query, "page": page, "per_page": limit}
        return self._exchange.get("/search/photos", params)[0]

    def photo_at(self, endpoint: str) -> Photo:
        if match := self._endpoint.fullmatch(endpoint):
            return Photo(match["id"], match["ixid"] or "")
        raise STOCKPHOTO_ENDPOINT_NOT_ALLOWED()

    def download_url(self, photo: Photo) -> str:
        params: dict[str, str | int] = {"ixid": photo.mark} if photo.mark else {}
        return self._exchange.file_url(f"/photos/{photo.id}/download", params)
