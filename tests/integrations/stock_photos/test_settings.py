import pytest
from pydantic import SecretStr

from core.errors import DomainError
from core.settings import Settings
from devstack.sandbox.sandbox_settings import build_stock_photo_settings
from integrations.stock_photos.port import PhotoProviderName
from integrations.stock_photos.registry import StockPhotoProviders

SANDBOX = "http://127.0.0.1:9999"
UNSPLASH_URL = "PRESSROOM_UNSPLASH_BASE_URL"
UNSPLASH_KEY = "PRESSROOM_UNSPLASH_ACCESS_KEY"
OPENVERSE_URL = "PRESSROOM_OPENVERSE_BASE_URL"


def test_devstack_leaves_photo_provider_to_the_user_if_any_setting_is_given() -> None:
    devstack_settings = build_stock_photo_settings(SANDBOX, {UNSPLASH_KEY: "their own"})
    assert {UNSPLASH_URL, UNSPLASH_KEY}.isdisjoint(devstack_settings)
    assert OPENVERSE_URL in devstack_settings
    devstack_settings = build_stock_photo_settings(
        SANDBOX, {OPENVERSE_URL: "https://openverse.example"}
    )
    assert OPENVERSE_URL not in devstack_settings
    assert {UNSPLASH_URL, UNSPLASH_KEY} <= devstack_settings.keys()


def create_providers(key: str | None) -> StockPhotoProviders:
    defaults = Settings.model_construct(unsplash_access_key=SecretStr(key) if key else None)
    return StockPhotoProviders(defaults, lambda *_: None)


def test_openverse_is_the_default_photo_provider_and_unsplash_is_disabled() -> None:
    providers = create_providers(None)
    assert providers.default is PhotoProviderName.OPENVERSE
    assert providers.get_provider(providers.default).origin == "https://api.openverse.org"
    with pytest.raises(DomainError) as error:
        providers.get_provider(PhotoProviderName.UNSPLASH)
    assert error.value.code == "stockphoto.not_configured"


def test_unsplash_is_enabled_by_its_key() -> None:
    assert (
        create_providers("key").get_provider(PhotoProviderName.UNSPLASH).origin
        == "https://api.unsplash.com"
    )
