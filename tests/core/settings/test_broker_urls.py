import pytest

from core.errors import SettingsError
from core.settings.given_settings import read_settings
from core.settings.store_settings import BrokerSettings, CacheSettings, Sentinels

REDIS = "redis://one/0"
OTHER_REDIS = "rediss://other/1"
RABBITMQ = "amqp://rabbitmq//"
SENTINELS = "sentinel://u:p@one:1/2?master_name=main;sentinel://two"


@pytest.fixture(autouse=True)
def _unset_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS", "BROKER", "CACHE"):
        monkeypatch.delenv(f"PRESSROOM_{name}_URL", raising=False)


def _set(monkeypatch: pytest.MonkeyPatch, **urls: str) -> None:
    for name, url in urls.items():
        monkeypatch.setenv(f"PRESSROOM_{name.upper()}_URL", url)


@pytest.mark.parametrize(
    ("urls", "broker", "cache"),
    [
        ({"redis": REDIS}, REDIS, REDIS),
        ({"redis": REDIS, "broker": OTHER_REDIS}, OTHER_REDIS, REDIS),
        ({"redis": REDIS, "cache": OTHER_REDIS}, REDIS, OTHER_REDIS),
        ({"broker": OTHER_REDIS, "cache": SENTINELS}, OTHER_REDIS, SENTINELS),
        ({"redis": REDIS, "broker": "", "cache": ""}, REDIS, REDIS),
    ],
)
def test_broker_and_cache_urls_default_to_redis_url(
    monkeypatch: pytest.MonkeyPatch, urls: dict[str, str], broker: str, cache: str
) -> None:
    _set(monkeypatch, **urls)
    settings = read_settings(CacheSettings)
    assert (settings.broker, settings.cache) == (broker, cache)


@pytest.mark.parametrize(
    ("urls", "invalid_names"),
    [
        ({}, {"REDIS"}),
        ({"cache": REDIS}, {"REDIS"}),
        ({"broker": REDIS}, {"CACHE"}),
        ({"redis": RABBITMQ}, {"REDIS"}),
        ({"redis": REDIS, "broker": RABBITMQ}, {"BROKER"}),
        ({"redis": REDIS, "broker": "amqps://u:hunter2@rabbitmq//"}, {"BROKER"}),
        ({"redis": REDIS, "cache": RABBITMQ}, {"CACHE"}),
        ({"broker": "hunter2", "cache": REDIS}, {"BROKER"}),
        ({"redis": "sentinel://u:hunter2@one/0"}, {"REDIS"}),
    ],
)
def test_settings_error_names_each_missing_or_invalid_redis_url_without_its_password(
    monkeypatch: pytest.MonkeyPatch, urls: dict[str, str], invalid_names: set[str]
) -> None:
    _set(monkeypatch, **urls)
    with pytest.raises(SettingsError) as raised:
        read_settings(CacheSettings)
    named = {line.partition(":")[0] for line in str(raised.value).splitlines()}
    assert named == {f"PRESSROOM_{name}_URL" for name in invalid_names}
    assert "hunter2" not in str(raised.value)


def test_process_that_needs_only_the_broker_starts_without_cache_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _set(monkeypatch, broker=REDIS)
    assert read_settings(BrokerSettings).broker == REDIS


def test_sentinel_url_is_parsed_into_hosts_credentials_and_tls_options() -> None:
    sentinels = Sentinels.parse(
        "sentinel+tls://u%40:p%3B%2F@one:1/2?master_name=main&sentinel_password=a%26b"
        "&ssl_ca_certs=/run/ca.pem;sentinel+tls://[::1]:3;sentinel+tls://three/"
    )
    assert sentinels.hosts == (("one", 1), ("::1", 3), ("three", 26379))
    assert (sentinels.user, sentinels.password, sentinels.database) == ("u@", "p;/", 2)
    assert (sentinels.master_name, sentinels.sentinel_user, sentinels.sentinel_password) == (
        "main",
        None,
        "a&b",
    )
    assert (sentinels.is_encrypted, sentinels.ca_file) == (True, "/run/ca.pem")
    assert "p;/" not in repr(sentinels)


@pytest.mark.parametrize(
    "url",
    [
        "sentinel://one/0",
        "sentinel://one/0?master_name=",
        "sentinel:///0?master_name=main",
        "sentinel://one/zero?master_name=main",
        "sentinel://one:port/0?master_name=main",
        "sentinel://one/0?master_name=main&ssl_cert_reqs=none",
        "sentinel://one/0?master_name=main#end",
        "sentinel://one/0?master_name=main;",
        "sentinel://one/0?master_name=main;sentinel+tls://two",
        "sentinel://one/0?master_name=main;sentinel://two/1",
        "sentinel://one;sentinel://two/0?master_name=main",
    ],
)
def test_malformed_sentinel_url_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="must have the form sentinel://"):
        Sentinels.parse(url)
