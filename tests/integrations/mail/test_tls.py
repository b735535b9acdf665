"""TLS: by the scheme alone, verified, and never given up for a connection in the clear."""

import ssl
from pathlib import Path

import pytest

from core.errors import TransientError
from tests.certificates import self_signed
from tests.integrations.mail.letters import letter, mailer
from tests.integrations.mail.server import Talker, running_talker


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls") / "localhost.pem")


@pytest.fixture(scope="module")
def context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def vouched_for(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate's maker is one of the system's authorities."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


@pytest.mark.usefixtures("vouched_for")
def test_mail_goes_over_tls_from_the_first_byte(context: ssl.SSLContext) -> None:
    with running_talker(Talker(), context) as talker:
        mailer(f"smtps://localhost:{talker.port}").send(letter())
        assert len(talker.messages) == 1


@pytest.mark.usefixtures("vouched_for")
def test_mail_and_login_go_after_starttls_alone(context: ssl.SSLContext) -> None:
    talker = Talker(extensions=("STARTTLS", "AUTH PLAIN"), context=context)
    talker.answers["AUTH"] = "235 welcome"
    with running_talker(talker):
        mailer(f"smtp+starttls://u:p@localhost:{talker.port}").send(letter())
    verbs = [heard.split()[0] for heard in talker.heard]
    assert verbs[:4] == ["EHLO", "STARTTLS", "EHLO", "AUTH"]
    assert len(talker.messages) == 1


@pytest.mark.parametrize("scheme", ["smtps", "smtp+starttls"])
def test_a_certificate_that_nobody_vouches_for_gets_neither_login_nor_mail(
    context: ssl.SSLContext, scheme: str
) -> None:
    talker = Talker(extensions=("STARTTLS", "AUTH PLAIN"), context=context)
    with running_talker(talker, context if scheme == "smtps" else None):
        with pytest.raises(TransientError):
            mailer(f"{scheme}://u:p@localhost:{talker.port}").send(letter())
        assert not any(heard.startswith(("AUTH", "MAIL")) for heard in talker.heard)


@pytest.mark.usefixtures("vouched_for")
def test_a_certificate_for_another_host_is_refused(context: ssl.SSLContext) -> None:
    with running_talker(Talker(), context) as talker:
        with pytest.raises(TransientError):
            mailer(f"smtps://127.0.0.1:{talker.port}").send(letter())
        assert talker.heard == []


def test_a_server_that_offers_no_starttls_gets_neither_login_nor_mail() -> None:
    talker = Talker(extensions=("AUTH PLAIN",))
    with running_talker(talker), pytest.raises(TransientError, match="STARTTLS"):
        mailer(f"smtp+starttls://u:p@localhost:{talker.port}").send(letter())
    assert [heard.split()[0] for heard in talker.heard] == ["EHLO"]
