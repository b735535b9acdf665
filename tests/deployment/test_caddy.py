"""Tests that the limits of the Caddy proxy match the limits of the API."""

import re

import pytest

from api.client_connections import KEEP_ALIVE_SECONDS, MAX_HEAD_BYTES, MAX_HEAD_SECONDS
from api.middleware.deadlines import DEADLINE_SECONDS
from api.middleware.layers import MAX_PATH_BYTES
from tests.support.commands.command_line import option
from tests.support.deployment import files
from tests.support.deployment.files import ROOT

CADDYFILE = ROOT / "deploy" / "compose" / "Caddyfile"

pytestmark = pytest.mark.tier("check")


def _values(name: str) -> list[str]:
    return re.findall(rf"^\s*{name} (.+)$", CADDYFILE.read_text(), re.MULTILINE)


def _seconds(name: str) -> int:
    [value] = _values(name)
    return int(value.removesuffix("s"))


def test_caddy_waits_longer_than_the_longest_api_call_and_buffers_nothing() -> None:
    api = files.our_services()["api"]
    assert _values("reverse_proxy") == [f"api:{option(api['command'], '--port')} {{"]
    assert _seconds("response_header_timeout") > DEADLINE_SECONDS
    # Caddy doesn't limit the duration of an upload or download, which may take hours.
    assert not _values("read_body")
    assert not _values("write")
    # Caddy doesn't buffer the bodies of requests and responses. Caddy closes an idle connection to
    # the API before the API closes the connection.
    assert not re.search("buffers|flush_interval", CADDYFILE.read_text())
    assert _seconds("keepalive") < KEEP_ALIVE_SECONDS


def test_caddy_limits_request_heads_like_the_api() -> None:
    assert _seconds("read_header") == MAX_HEAD_SECONDS
    [size] = _values("max_header_size")
    assert int(size.removesuffix("KiB")) * 1024 == MAX_HEAD_BYTES


def test_caddy_rejects_long_paths_like_the_api() -> None:
    assert _values("@long_path") == [f"expression `size({{path}}) > {MAX_PATH_BYTES}`"]
    assert _values("respond @long_path") == ["414"]
