"""No message has the words in which the library that checks values puts ours."""

from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from cli.main import app
from core.settings import SettingsError
from core.settings.given_settings import read_settings
from core.settings.store_settings import DatabaseSettings
from tests.openapi import openapi_document

DOCUMENT = openapi_document()
FOREIGN = ("Value error", "Assertion failed")
# No id, number, word of an enumeration, address or text that can be stored.
NOTHING = "no\0thing"


def wrong_calls() -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Each operation with a wrong value in each of its places, one by one."""
    return [
        (method.upper(), path, query, body)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        for query, body in (
            *(({each: NOTHING}, {}) for each in _names(operation)),
            *(({}, {each: NOTHING}) for each in _fields(operation)),
        )
    ]


def _names(operation: dict[str, Any]) -> list[str]:
    return [each["name"] for each in operation["parameters"] if each.get("in") == "query"]


def _fields(operation: dict[str, Any]) -> list[str]:
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return list(schema.get("properties", {}))


@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    wrong_calls(),
    ids=lambda each: "".join(each) if isinstance(each, dict) else each,
)
def test_a_wrong_value_is_refused_in_our_words(
    client: httpx.Client, method: str, path: str, query: dict[str, Any], body: dict[str, Any]
) -> None:
    reply = client.request(method, path, params=query, json=body or None)
    assert 400 <= reply.status_code < 500
    assert not any(words in reply.text for words in FOREIGN)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/lists/none/subscriptions", "path.list_id: must be an unsigned 64-bit integer"),
        ("/lists/1/subscriptions?premium=much", "query.premium: must be one of"),
        ("/attachments?limit=0", "query.limit: Input should be greater than or equal to 1"),
    ],
)
def test_the_rule_is_all_that_a_message_says(client: httpx.Client, path: str, said: str) -> None:
    refused = client.get(path).json()
    assert refused["detail"].startswith(said)
    assert refused["errors"][0]["message"] == refused["detail"].partition(": ")[2]


@pytest.mark.parametrize(
    "words", [["export", "list", "--kind", "much"], ["users", "plan", "a@b.example", "gold"]]
)
def test_a_command_refuses_in_our_words(words: list[str]) -> None:
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "is not one of" in refused.output
    assert not any(foreign in refused.output for foreign in FOREIGN)


def test_a_wrong_setting_is_refused_in_our_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRESSROOM_DATABASE_URL", "mysql://pressroom")
    with pytest.raises(SettingsError) as refused:
        read_settings(DatabaseSettings)
    assert str(refused.value) == "PRESSROOM_DATABASE_URL: must begin with postgresql://"
