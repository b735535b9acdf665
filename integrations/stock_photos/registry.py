from core.refusals.composer import STOCKPHOTO_NOT_CONFIGURED
from core.settings import Settings
from integrations.stock_photos.exchange import QuotaReport
from integrations.stock_photos.openverse import Openverse
from integrations.stock_photos.port import PhotoProviderName, StockPhotos
from integrations.stock_photos.unsplash import Unsplash


class StockPhotoProviders:
    """The providers that the settings name; one for a process. Connects at the first request."""

    def __init__(self, given: Settings, report: QuotaReport) -> None:
        self.default = PhotoProviderName(given.stock_photo_provider)
        self._adapters: dict[PhotoProviderName, StockPhotos] = {
            PhotoProviderName.OPENVERSE: Openverse(_base(str(given.openverse_base_url)), report)
        }
        if given.unsplash_access_key:
            self._adapters[PhotoProviderName.UNSPLASH] = Unsplash(
                _base(str(given.unsplash_base_url)), given.unsplash_access_key, report
            )

    def named(self, name: PhotoProviderName) -> StockPhotos:
        """Raises ``stockphoto.not_configured`` (unavailable): the caller can't mend it."""
        if name not in self._adapters:
            raise STOCKPHOTO_NOT_CONFIGURED(provider=name)
        return self._adapters[name]


def _base(url: str) -> str:
    return url.rstrip("/")
