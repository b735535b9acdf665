"""No message has the words in which the library that checks values puts ours."""

import httpx
import pytest
from typer.testing import CliRunner

from cli.main import app
from core.errors import own_words
from core.settings import SettingsError
from core.settings.given_settings import read_settings
from core.settings.store_settings import DatabaseSettings

FOREIGN = ("Value error", "Assertion failed")


@pytest.mark.parametrize("words", ["Value error, must be odd", "Assertion failed, must be odd"])
def test_words_of_the_library_are_left_out(words: str) -> None:
    assert own_words(words) == own_words("must be odd") == "must be odd"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("GET /lists/none/subscriptions", "path.list_id: must be an unsigned 64-bit integer"),
        ("GET /lists/1/subscriptions?premium=much", "query.premium: must be one of"),
        ("POST /lists", "body.title: must not hold NUL characters"),
    ],
)
def test_the_rule_is_all_that_a_message_says(client: httpx.Client, call: str, said: str) -> None:
    method, path = call.split()
    body = {"title": "\0", "slug": "t"} if method == "POST" else None
    refused = client.request(method, path, json=body).json()
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
