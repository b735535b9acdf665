"""Creates settings for tests, from arguments or from environment variables."""

import os
from collections.abc import Callable

import pytest

from core.settings import Settings, load_settings

KEY = "k1:" + "A" * 43
_REQUIRED = {
    "database_url": "postgresql://u:p@localhost/db",
    "redis_url": "redis://localhost/0",
    "s3_endpoint": "http://localhost",
    "s3_access_key": "a",
    "s3_secret_key": "s",
    "public_url": "http://localhost",
    "secret_keys": KEY,
    "encryption_keys": KEY,
}
# The type of the fixture ``load``, a function that returns settings.
Load = Callable[..., Settings]


def settings(**chosen: object) -> Settings:
    return Settings.model_validate({**_REQUIRED, **chosen})


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all of Pressroom's variables from the environment."""
    for name in [name for name in os.environ if name.startswith("PRESSROOM_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def load(no_settings: None, monkeypatch: pytest.MonkeyPatch) -> Load:
    """A function that loads settings from environment variables, as a program does.

    The function first writes its arguments and all required settings into environment variables.
    """

    def load_from_environment(**chosen: str) -> Settings:
        for name, value in {**_REQUIRED, **chosen}.items():
            monkeypatch.setenv(f"PRESSROOM_{name.upper()}", value)
        return load_settings.__wrapped__()

    return load_from_environment
