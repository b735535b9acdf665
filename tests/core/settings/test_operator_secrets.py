"""Nothing slows down guesses at what operators' tools ask for, so it is long."""

import pytest

from core.settings import SettingsError, load_settings


@pytest.fixture(autouse=True)
def needed(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "k1:" + "A" * 43
    for name, value in {
        "DATABASE_URL": "postgresql://p:p@127.0.0.1:5432/p",
        "REDIS_URL": "redis://127.0.0.1:6379/0",
        "S3_ENDPOINT": "http://127.0.0.1:9000",
        "S3_ACCESS_KEY": "x",
        "S3_SECRET_KEY": "x",
        "PUBLIC_URL": "http://127.0.0.1:8000",
        "SECRET_KEYS": key,
        "ENCRYPTION_KEYS": key,
    }.items():
        monkeypatch.setenv(f"PRESSROOM_{name}", value)


@pytest.mark.parametrize("name", ["METRICS_TOKEN", "FLOWER_PASSWORD"])
def test_a_short_one_stops_the_process_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(f"PRESSROOM_{name}", "nineteen characters")
    with pytest.raises(SettingsError, match=f"PRESSROOM_{name}: .*20 characters") as caught:
        load_settings.__wrapped__()
    assert "nineteen" not in str(caught.value)
    monkeypatch.setenv(f"PRESSROOM_{name}", "twenty characters...")
    assert getattr(load_settings.__wrapped__(), name.lower()) is not None
