"""The configured stock photo providers."""

from core.errors.composer import STOCKPHOTO_NOT_CONFIGURED
from core.settings import Settings
from integrations.stock_photos.exchange import QuotaReport
from integrations.stock_photos.openverse import Openverse
from integrations.stock_photos.port import PhotoProviderName, StockPhotos
from integrations.stock_photos.unsplash import Unsplash


class StockPhotoProviders:
    """The client of each provider connects at its first request.

    Use one ``StockPhotoProviders`` per process, so that requests share connections.
    """

    def __init__(self, given: Settings, report: QuotaReport) -> None:
        self.default = PhotoProviderName(given.stock_photo_provider)
        self._adapters: dict[PhotoProviderName, StockPhotos] = {
            PhotoProviderName.OPENVERSE: Openverse(
                str(given.openverse_base_url).rstrip("/"), report
            )
        }
        if given.unsplash_access_key:
            self._adapters[PhotoProviderName.UNSPLASH] = Unsplash(
                str(given.unsplash_base_url).rstrip("/"), given.unsplash_access_key, report
            )

    @property
    def names(self) -> list[PhotoProviderName]:
        """Return the names of the configured providers, beginning with the default provider."""
        return sorted(self._adapters, key=lambda name: (name != self.default, name))

    def get_provider(self, name: PhotoProviderName) -> StockPhotos:
        if name not in self._adapters:
            raise STOCKPHOTO_NOT_CONFIGURED(provider=name)
        return self._adapters[name]
