import pytest
from pydantic import SecretStr

from core.errors import DomainError
from core.settings import Settings
from devstack.sandbox.sandbox_settings import build_stock_photo_settings
from integrations.stock_photos.port import PhotoProviderName
from integrations.stock_photos.registry import StockPhotoProviders

SANDBOX = "http://127.0.0.1:9999"
UNSPLASH = "PRESSROOM_UNSPLASH_BASE_URL"
KEY = "PRESSROOM_UNSPLASH_ACCESS_KEY"
OPENVERSE = "PRESSROOM_OPENVERSE_BASE_URL"


def test_devstack_leaves_photo_provider_to_the_user_if_any_setting_is_given() -> None:
    chosen = build_stock_photo_settings(SANDBOX, {KEY: "their own"})
    assert {UNSPLASH, KEY}.isdisjoint(chosen)
    assert OPENVERSE in chosen
    chosen = build_stock_photo_settings(SANDBOX, {OPENVERSE: "https://openverse.example"})
    assert OPENVERSE not in chosen
    assert {UNSPLASH, KEY} <= chosen.keys()


def providers(key: str | None) -> StockPhotoProviders:
    defaults = Settings.model_construct(unsplash_access_key=SecretStr(key) if key else None)
    return StockPhotoProviders(defaults, lambda *_: None)


def test_openverse_is_the_default_photo_provider_and_unsplash_is_disabled() -> None:
    known = providers(None)
    assert known.default is PhotoProviderName.OPENVERSE
    assert known.get_provider(known.default).origin == "https://api.openverse.org"
    with pytest.raises(DomainError) as caught:
        known.get_provider(PhotoProviderName.UNSPLASH)
    assert caught.value.code == "stockphoto.not_configured"


def test_unsplash_is_enabled_by_its_key() -> None:
    assert (
        providers("key").get_provider(PhotoProviderName.UNSPLASH).origin
        == "https://api.unsplash.com"
    )
