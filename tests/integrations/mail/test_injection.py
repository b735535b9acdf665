import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.errors import DomainError
from core.settings.mail_server import MailSender, MailServer
from devstack.sandbox.mailbox import parse_mail
from integrations.mail.port import Mail
from integrations.mail.smtp import SmtpMailer, compose_message
from tests.support.mail.server import SENDER, ScriptedSmtpServer, build_mail, build_mailer

HEADER_NAMES = ["From", "To", "Subject", "Date", "Message-ID"]
HEADER_NAMES += ["Auto-Submitted", "X-Auto-Response-Suppress", "MIME-Version", "Content-Type"]
RECIPIENT = "reader@example.com"


@given(subject=st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
@example("a\r\nBcc: everybody@example.com")
@example("a\n\n<p>another body")
@example("=?utf-8?q?a=0D=0ABcc:_x@example.com?=")
@example("a\x0bBcc: b\x0cc\x1cd\x85e\u2028f")
@example("a\r")
def test_mail_subject_cannot_inject_headers_or_lines(subject: str) -> None:
    raw = compose_message(build_mail(subject=subject), SENDER, RECIPIENT)
    message = parse_mail(raw)
    assert message.keys() == HEADER_NAMES
    assert message["To"] == RECIPIENT
    assert message.get_content_type() == "multipart/alternative"
    head = raw.partition(b"\r\n\r\n")[0]
    assert len(head.splitlines()) == head.count(b"\r\n") + 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Note", "a\r\nBcc: x@example.com"),
        ("X-Note", "a\nb"),
        ("X-Note", "a\x00b"),
        ("X-Note", "\ud800"),
        ("X-Note", "a" * 1000),
        ("X-Note: a\r\nBcc", "x@example.com"),
        ("X Note", "a"),
        ("", "a"),
        ("From", "boss@example.com"),
        ("bcc", "x@example.com"),
        ("auto-submitted", "no"),
        ("Content-Type", "text/plain"),
    ],
)
def test_malformed_or_reserved_mail_header_is_rejected(name: str, value: str) -> None:
    with pytest.raises(DomainError) as error:
        compose_message(build_mail(headers={name: value}), SENDER, RECIPIENT)
    assert error.value.code == "mail.refused"


@pytest.mark.parametrize(
    "mail", [build_mail(subject="\ud800"), build_mail(text="\ud800"), build_mail(html="\ud800")]
)
def test_mail_text_with_lone_surrogate_is_rejected(mail: Mail) -> None:
    with pytest.raises(DomainError) as error:
        compose_message(mail, SENDER, RECIPIENT)
    assert error.value.code == "mail.refused"


@pytest.mark.parametrize(
    "to",
    [
        "a@example.com\r\nRCPT TO:<b@example.com>",
        "a@example.com, b@example.com",
        "<a@example.com> SIZE=1",
        "a b@example.com",
        "a@example.com\x00",
        "a@",
        "",
    ],
)
def test_malformed_recipient_never_reaches_the_mail_server(
    scripted_server: ScriptedSmtpServer, to: str
) -> None:
    with pytest.raises(DomainError) as error:
        build_mailer(f"smtp://127.0.0.1:{scripted_server.port}").send(build_mail(to or " "))
    assert error.value.code == "mail.refused"
    assert to.strip() == "" or to not in str(error.value)
    assert scripted_server.received_commands == []


@pytest.mark.parametrize(
    "name", ["Plain", "A, B", 'say "hi"', "Zeitung für alle", "=?utf-8?q?x?=", "a@b.example"]
)
def test_mail_sender_name_cannot_change_the_sender_address(
    scripted_server: ScriptedSmtpServer, name: str
) -> None:
    server = MailServer.parse(f"smtp://127.0.0.1:{scripted_server.port}")
    SmtpMailer(server, MailSender(name, "news@pressroom.example")).send(build_mail())
    [raw_message] = scripted_server.messages
    [address] = parse_mail(raw_message)["From"].addresses
    assert address.addr_spec == "news@pressroom.example"
    assert "MAIL FROM:<news@pressroom.example>" in scripted_server.received_commands
