"""The stock photo providers that are configured in the settings."""

from core.errors.composer import STOCKPHOTO_NOT_CONFIGURED
from core.settings import Settings
from integrations.stock_photos.exchange import QuotaReport
from integrations.stock_photos.openverse import Openverse
from integrations.stock_photos.port import PhotoProviderName, StockPhotos
from integrations.stock_photos.unsplash import Unsplash


class StockPhotoProviders:
    """The configured stock photo providers, each of which connects at its first request.

    A process needs only one ``StockPhotoProviders`` instance, whose requests share connections.
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
        """Return the names of the configured providers, with the default provider first."""
        return sorted(self._adapters, key=lambda name: (name != self.default, name))

    def get_provider(self, name: PhotoProviderName) -> StockPhotos:
        """Return the stock photo provider that has the given name.

        Raises ``stockphoto.not_configured`` (unavailable) for a stock photo provider that the
        operator has not configured.
        """
        if name not in self._adapters:
            raise STOCKPHOTO_NOT_CONFIGURED(provider=name)
        return self._adapters[name]
