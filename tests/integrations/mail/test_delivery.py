import re
import ssl
from email import message_from_bytes
from email.utils import parseaddr, parsedate_to_datetime
from pathlib import Path

import pytest

from core import clock
from core.errors import TransientError
from core.settings.mail_server import MailSender
from devstack.sandbox.mailbox import StoredMail, parse_mail
from integrations.mail.port import Mail
from integrations.mail.smtp import compose_message
from tests.support.http.certificates import self_signed
from tests.support.mail.server import (
    Sandbox,
    ScriptedSmtpServer,
    build_mail,
    build_mailer,
    new_address,
    running_scripted_server,
)

SENDER = MailSender.parse("Pressroom <news@example.com>")


def build_message_id(mail: Mail) -> str:
    return str(message_from_bytes(compose_message(mail, SENDER, mail.to))["Message-ID"])


def test_mail_with_key_has_the_same_message_id_on_every_attempt() -> None:
    mail = Mail("a@example.org", "Hello", "text", "<p>html</p>", key="job-7")
    assert build_message_id(mail) == build_message_id(mail) == "<job-7@example.com>"


def test_mail_without_key_has_a_unique_message_id() -> None:
    mail = Mail("a@example.org", "Hello", "text", "<p>html</p>")
    assert build_message_id(mail) != build_message_id(mail)
    assert re.fullmatch(r"<\S+@example\.com>", build_message_id(mail))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls") / "localhost.pem")


@pytest.fixture(scope="module")
def tls_context(certificate: Path) -> ssl.SSLContext:
    tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_context.load_cert_chain(certificate)
    return tls_context


@pytest.fixture
def trusted_certificate(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the test process trust the self-signed certificate of the SMTP server."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


@pytest.mark.usefixtures("trusted_certificate")
def test_smtps_mail_is_delivered_over_tls(tls_context: ssl.SSLContext) -> None:
    with running_scripted_server(ScriptedSmtpServer(), tls_context) as scripted_server:
        build_mailer(f"smtps://localhost:{scripted_server.port}").send(build_mail())
        assert len(scripted_server.messages) == 1


@pytest.mark.usefixtures("trusted_certificate")
def test_starttls_precedes_login_and_mail(tls_context: ssl.SSLContext) -> None:
    scripted_server = ScriptedSmtpServer(extensions=("STARTTLS", "AUTH PLAIN"), context=tls_context)
    scripted_server.answers["AUTH"] = "235 welcome"
    with running_scripted_server(scripted_server):
        build_mailer(f"smtp+starttls://u:p@localhost:{scripted_server.port}").send(build_mail())
    verbs = [command.split()[0] for command in scripted_server.received_commands]
    assert verbs[:4] == ["EHLO", "STARTTLS", "EHLO", "AUTH"]
    assert len(scripted_server.messages) == 1


@pytest.mark.parametrize("scheme", ["smtps", "smtp+starttls"])
def test_untrusted_mail_server_certificate_receives_neither_login_nor_mail(
    tls_context: ssl.SSLContext, scheme: str
) -> None:
    scripted_server = ScriptedSmtpServer(extensions=("STARTTLS", "AUTH PLAIN"), context=tls_context)
    with running_scripted_server(scripted_server, tls_context if scheme == "smtps" else None):
        with pytest.raises(TransientError):
            build_mailer(f"{scheme}://u:p@localhost:{scripted_server.port}").send(build_mail())
        assert not any(
            command.startswith(("AUTH", "MAIL")) for command in scripted_server.received_commands
        )


@pytest.mark.usefixtures("trusted_certificate")
def test_mail_server_certificate_for_another_host_is_rejected(tls_context: ssl.SSLContext) -> None:
    with running_scripted_server(ScriptedSmtpServer(), tls_context) as scripted_server:
        with pytest.raises(TransientError):
            build_mailer(f"smtps://127.0.0.1:{scripted_server.port}").send(build_mail())
        assert scripted_server.received_commands == []


def test_mail_server_without_starttls_receives_neither_login_nor_mail() -> None:
    scripted_server = ScriptedSmtpServer(extensions=("AUTH PLAIN",))
    with running_scripted_server(scripted_server), pytest.raises(TransientError, match="STARTTLS"):
        build_mailer(f"smtp+starttls://u:p@localhost:{scripted_server.port}").send(build_mail())
    assert [command.split()[0] for command in scripted_server.received_commands] == ["EHLO"]


def deliver_mail(mail_sandbox: Sandbox, mail: Mail) -> StoredMail:
    build_mailer(mail_sandbox.url).send(mail)
    [stored_mail] = mail_sandbox.mailbox.list_newest_first(mail.to)
    return stored_mail


def test_mail_arrives_as_text_and_html_with_all_required_headers(
    mail_sandbox: Sandbox,
) -> None:
    earliest_date = clock.now().replace(microsecond=0)
    mail = build_mail(text="Hello\n\n.\n..\nFrom ünï\n", html="<p>ünï &amp; <b>bold</b></p>\n")
    received = deliver_mail(mail_sandbox, mail)
    message = parse_mail(received.raw)
    assert message.get_content_type() == "multipart/alternative"
    parts = [part.get_content_type() for part in message.iter_parts()]
    assert parts == ["text/plain", "text/html"]  # mail programs prefer the last part
    assert all(part.get_content_charset() == "utf-8" for part in message.iter_parts())
    assert (received.text, received.html) == (mail.text, mail.html)
    assert message["To"] == mail.to
    assert parseaddr(message["From"]) == ("Press & Röom", "news@pressroom.example")
    assert earliest_date <= parsedate_to_datetime(message["Date"]) <= clock.now()
    assert message["Message-ID"].endswith("@pressroom.example>")
    assert message["MIME-Version"] == "1.0"
    assert message.get_all("Auto-Submitted") == ["auto-generated"]
    assert message.get_all("X-Auto-Response-Suppress") == ["OOF, AutoReply"]
    assert message.defects == []


@pytest.mark.parametrize(
    "subject",
    [
        "Grüße aus Köln",
        "日本語の件名、とても長いのでいくつもの行に分けられるはずです。" * 4,
        "plain " * 30 + "end",
        "=?utf-8?q?looks_encoded?=",
        "",
    ],
)
def test_mail_subject_of_any_script_and_length_arrives_unchanged(
    mail_sandbox: Sandbox, subject: str
) -> None:
    received = deliver_mail(mail_sandbox, build_mail(subject=subject))
    assert received.subject == subject.strip()
    head = received.raw.partition(b"\r\n\r\n")[0]
    assert head.isascii()
    encoded = [line for line in head.split(b"\r\n") if b"=?utf-8?" in line]
    assert all(len(line) <= 78 for line in encoded)


def test_long_unsubscribe_link_in_mail_header_is_not_folded(mail_sandbox: Sandbox) -> None:
    link = f"<https://pressroom.example/unsubscribe?trace_id={'x' * 600}>"
    one_click = "List-Unsubscribe=One-Click"
    headers = {"List-Unsubscribe": link, "List-Unsubscribe-Post": one_click}
    received = deliver_mail(mail_sandbox, build_mail(headers=headers))
    assert f"List-Unsubscribe: {link}\r\n".encode() in received.raw
    assert f"List-Unsubscribe-Post: {one_click}\r\n".encode() in received.raw


def test_non_ascii_mail_header_arrives_unchanged(mail_sandbox: Sandbox) -> None:
    headers = dict(
        deliver_mail(mail_sandbox, build_mail(headers={"List-Id": "Zeitung für alle"})).headers
    )
    assert headers["List-Id"] == "Zeitung für alle"


def test_internationalized_mail_domain_is_converted_to_punycode(mail_sandbox: Sandbox) -> None:
    build_mailer(mail_sandbox.url).send(build_mail("reader@straße.example.com"))
    [received] = mail_sandbox.mailbox.list_newest_first("reader@xn--strae-oqa.example.com")
    assert parse_mail(received.raw)["To"] == "reader@xn--strae-oqa.example.com"


def test_mail_to_non_ascii_local_part_is_delivered_with_smtputf8_support(
    mail_sandbox: Sandbox,
) -> None:
    mail = build_mail(new_address("δοκιμή"))
    received = deliver_mail(mail_sandbox, mail)
    assert dict(received.headers)["To"] == mail.to
    assert received.text == "Hello\n"
