"""Tests of the browser names that are derived from user agents."""

import pytest

from api.client_details import browser_name

LINUX_PREFIX = "Mozilla/5.0 (X11; Linux x86_64"
WINDOWS_PREFIX = "Mozilla/5.0 (Windows NT 10.0; Win64; x64)"
CHROME_SUFFIX = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36"


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (f"{LINUX_PREFIX}; rv:145.0) Gecko/20100101 Firefox/145.0", "Firefox on Linux"),
        (f"{WINDOWS_PREFIX} {CHROME_SUFFIX}", "Chrome on Windows"),
        (f"{WINDOWS_PREFIX} {CHROME_SUFFIX} Edg/141.0.0.0", "Edge on Windows"),
        (f"Mozilla/5.0 (Linux; Android 10; K) {CHROME_SUFFIX} OPR/95.0", "Opera on Android"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Safari/604.1", "Safari on iPhone"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) Safari/605.1.15", "Safari on macOS"),
        ("curl/8.5.0", None),
        ("<script>alert(1)</script>", None),
        (None, None),
    ],
)
def test_user_agent_is_shown_as_browser_and_platform(
    user_agent: str | None, name: str | None
) -> None:
    assert browser_name(user_agent) == name
