"""Tests which user agents count as machines, and which as browsers of people."""

import pytest

from core.machine_agents import is_machine_agent

BROWSERS = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile Safari/604.1",
    # CUBOT is a brand of phones, although the name contains "bot".
    "Mozilla/5.0 (Linux; Android 14; CUBOT X90) Chrome/139.0.0.0 Mobile Safari/537.36",
]


@pytest.mark.parametrize("agent", [*BROWSERS, None, 5, "", "mozilla/5.0 (compatible)"])
def test_browser_is_not_a_machine(agent: object) -> None:
    assert not is_machine_agent(agent)


@pytest.mark.parametrize(
    "agent",
    [
        "Mozilla/5.0",
        "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)",
        "Mozilla/5.0 (compatible; GoogleBot/2.1)",
        "Mozilla/5.0 (compatible; Unknown/1.0; +https://example.com/crawler)",
        "CURL/8.5.0",
    ],
)
def test_proxy_scanner_or_crawler_is_a_machine(agent: str) -> None:
    assert is_machine_agent(agent)
