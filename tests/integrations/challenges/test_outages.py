import contextlib
import socket
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from integrations.challenges import registry
from integrations.challenges.port import ChallengeProviderName
from integrations.http_client import HttpBounds
from tests.support.challenges.server import ChallengeServer, running_challenge_server
from tests.support.challenges.setting import check_repeatedly, check_token, settings_for_server
from tests.support.http.certificates import self_signed


@pytest.mark.slow
def test_challenge_check_times_out_early_if_provider_does_not_accept_the_connection() -> None:
    with socket.socket() as full_server, contextlib.ExitStack() as connections:
        full_server.bind(("127.0.0.1", 0))
        full_server.listen(0)
        # When the server's queue of unaccepted connections is full, the operating system doesn't
        # answer further attempts to connect.
        for _ in range(4):
            connection = connections.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(full_server.getsockname())
        settings = settings_for_server(f"http://127.0.0.1:{full_server.getsockname()[1]}/")
        with capture_logs() as lines:
            assert (
                check_token(settings, ChallengeProviderName.TURNSTILE, "t")
                == "challenge.unavailable"
            )
    assert [line["reason"] for line in lines] == ["ConnectTimeout"]


def test_hanging_challenge_provider_delays_only_the_first_callers(
    challenge_server: ChallengeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_bounds = HttpBounds(max_seconds=0.2, max_connect_seconds=0.2, max_reply_bytes=1000)
    monkeypatch.setattr(registry, "BOUNDS", short_bounds)
    challenge_server.drips = True
    challenge_server.body = b" " * 1000
    assert (
        check_repeatedly(settings_for_server(challenge_server.url), 20)
        == ["challenge.unavailable"] * 20
    )
    assert len(challenge_server.requests) < 10


def test_repeatedly_rejected_challenge_tokens_do_not_count_as_outage(
    challenge_server: ChallengeServer,
) -> None:
    challenge_server.set_reply({"success": False, "error-codes": ["invalid-input-response"]})
    assert (
        check_repeatedly(settings_for_server(challenge_server.url), 20) == ["challenge.failed"] * 20
    )


@pytest.mark.parametrize("provider", ChallengeProviderName)
def test_refused_connection_to_challenge_provider_is_an_outage(
    provider: ChallengeProviderName,
) -> None:
    with socket.socket() as unused_socket:
        unused_socket.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused_socket.getsockname()[1]}/"
        assert check_token(settings_for_server(url), provider, "t") == "challenge.unavailable"


def test_untrusted_certificate_of_challenge_provider_is_an_outage(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(tmp_path / "localhost.pem"))
    with running_challenge_server(context) as impostor:
        settings = settings_for_server(impostor.url)
        assert check_token(settings, ChallengeProviderName.HCAPTCHA, "t") == "challenge.unavailable"
        assert impostor.requests == []


def test_challenge_client_ignores_proxies_from_the_environment(
    challenge_server: ChallengeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_challenge_server() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert (
            check_token(
                settings_for_server(challenge_server.url), ChallengeProviderName.HCAPTCHA, "t"
            )
            == "passed"
        )
        assert proxy.requests == []
