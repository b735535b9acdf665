"""The way in of the Compose file: what it lets through, and how long it waits."""

import re

import pytest

from api.client_connections import KEEP_ALIVE_SECONDS, MAX_HEAD_BYTES, MAX_HEAD_SECONDS
from api.middleware.body_limits import LIMITS, body_limit_of
from api.middleware.layers import DEADLINE_SECONDS
from core.upload_limits import MAX_IMPORT_FILE_BYTES
from tests.command_line import option
from tests.deployment import files

pytestmark = pytest.mark.check

MEGABYTE = 1024 * 1024


def _values(name: str) -> list[str]:
    return re.findall(rf"^\s*{name} (.+)$", files.CADDYFILE.read_text(), re.MULTILINE)


def _seconds(name: str) -> int:
    [value] = _values(name)
    return int(value.removesuffix("s"))


def _sizes() -> list[int]:
    return [int(value.removesuffix("MiB")) * MEGABYTE for value in _values("max_size")]


def test_a_file_of_members_passes_and_what_no_route_takes_does_not() -> None:
    file_of_members, others = _sizes()
    [paths] = _values("@file_of_members path")
    assert _values("@others not path") == [paths]
    for route in ("/lists/*/imports", "/console/imports/new"):
        assert {route, f"{route}/"} <= set(paths.split())
    largest, *same = (body_limit_of(path.replace("*", "1").rstrip("/")) for path in paths.split())
    assert all(each is largest for each in same)
    assert largest.max_bytes <= file_of_members < 1.01 * MAX_IMPORT_FILE_BYTES
    rest = max(each.max_bytes for each in LIMITS if each is not largest)
    assert rest <= others < 1.1 * rest


def test_it_calls_the_api_and_waits_for_as_long_as_the_api_may_take() -> None:
    api = files.ours()["api"]
    assert _values("reverse_proxy") == [f"api:{option(api['command'], '--port')} {{"]
    assert _seconds("response_header_timeout") > DEADLINE_SECONDS
    # A body may take hours: no bound on the whole of a request or of an answer.
    assert not _values("read_body")
    assert not _values("write")
    # It holds no body and no answer in memory, and closes an idle connection first.
    assert not re.search("buffers|flush_interval", files.CADDYFILE.read_text())
    assert _seconds("keepalive") < KEEP_ALIVE_SECONDS


def test_what_is_for_operators_is_not_found_by_callers() -> None:
    """Caddy answers before it passes a call on, whatever the order in its file."""
    [paths] = _values("@operators path")
    assert paths.split() == ["/readyz", "/readyz/", "/metrics", "/metrics/"]
    assert _values("respond @operators") == ["404"]


def test_a_slow_or_large_head_ends_as_at_the_api() -> None:
    assert _seconds("read_header") == MAX_HEAD_SECONDS
    [size] = _values("max_header_size")
    assert int(size.removesuffix("KiB")) * 1024 == MAX_HEAD_BYTES


def test_nothing_changes_it_while_it_runs_and_it_has_time_to_end() -> None:
    proxy, text = files.services()["proxy"], files.CADDYFILE.read_text()
    assert _seconds("grace_period") < int(proxy["stop_grace_period"].removesuffix("s"))
    assert "\n{$PRESSROOM_PUBLIC_URL} {$PRESSROOM_PAGES_URL} {\n" in text
    assert {"PRESSROOM_PUBLIC_URL", "PRESSROOM_PAGES_URL"} <= proxy["environment"].keys()
    assert _values("admin") == ["off"]
    # The page of its health check is for itself alone.
    page = proxy["healthcheck"]["test"][-1]
    assert page.startswith("http://127.0.0.1:")
    assert f"{page.rstrip('/')} {{" in text
    assert _values("bind") == ["127.0.0.1"]
