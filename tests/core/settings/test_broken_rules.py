"""Tests the descriptions of invalid settings, which must not be messages of pydantic."""

import re

import pytest

from core.errors import SettingsError
from core.settings import Settings
from core.settings.given_settings import GivenSettings, read_values, variable_of
from core.settings.store_settings import BucketSettings, FlowerSettings, MigrationSettings

SETTINGS = [
    (kind, name)
    for kind in (Settings, MigrationSettings, BucketSettings, FlowerSettings)
    for name in kind.model_fields
]
WRONG_VALUES = (
    *("?", "http://", "ftp://x", "//x", "https://x:99999", "http://[::1", "x" * 3000),
    *("-1", "0", "1.5", "nan", "inf", "1e400", "9" * 50, "0.0000001", "1.2.3.4/99", "ä"),
)
PYDANTIC_WORDS = re.compile(
    r"should|Input|Field|valid (?:URL|boolean|number|integer|decimal)|unable|pattern|value is not"
)


def describe(kind: type[GivenSettings], name: str, value: str) -> list[str]:
    """Return the rules that a value of the setting breaks."""
    try:
        read_values(kind, {name: value})
    except SettingsError as error:
        prefix = f"{variable_of(name)}: "
        lines = [line for line in str(error).splitlines() if line.startswith(prefix)]
        return [line.removeprefix(prefix) for line in lines]
    return []


@pytest.mark.parametrize(
    ("kind", "name"), SETTINGS, ids=lambda each: getattr(each, "__name__", each)
)
def test_no_description_of_an_invalid_setting_is_a_message_of_pydantic(
    kind: type[GivenSettings], name: str
) -> None:
    for value in WRONG_VALUES:
        for rule in describe(kind, name, value):
            assert not PYDANTIC_WORDS.search(rule), value
            assert "{" not in rule


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("public_url", "news.example", "must be a URL such as https://www.example.com"),
        ("public_url", "http://", "must be a URL such as https://www.example.com"),
        ("public_url", "https://x:99999", "must be a URL such as https://www.example.com"),
        ("s3_endpoint", "ftp://x", "must be a URL that starts with http:// or https://"),
        ("api_docs", "perhaps", "must be true or false"),
        ("log_format", "xml", "must be 'auto', 'json' or 'pretty'"),
        ("backup_hours", "1.5", "must be a whole number"),
        ("api_drain", "soon", "must be a number"),
        ("api_drain", "61", "must be at most 60"),
        ("api_drain", "-1", "must be at least 0"),
        ("credits_per_usd", "0", "must be greater than 0"),
        ("credits_per_usd", "1.00001", "must have at most 4 decimal places"),
        ("worker_metrics_address", "9464", "must have the form host:port, such as 0.0.0.0:9464"),
        (
            "webhook_allowed_networks",
            "10.0.0.0/8,office",
            "must be IP addresses or networks such as 192.0.2.0/24, separated by commas",
        ),
    ],
)
def test_description_of_an_invalid_setting_names_the_rule(name: str, value: str, rule: str) -> None:
    assert describe(Settings, name, value) == [rule]


def test_description_of_a_missing_setting_says_that_it_is_required() -> None:
    with pytest.raises(SettingsError, match=r"^PRESSROOM_DATABASE_URL: is required$"):
        read_values(MigrationSettings, {})
