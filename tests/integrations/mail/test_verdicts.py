import socket
import traceback

import pytest

from core.errors import DomainError, TransientError
from devstack import LOOPBACK
from integrations.mail.registry import create_mailer
from tests.support.mail.server import ScriptedSmtpServer, build_mail, build_mailer, new_address
from tests.support.stack.given_settings import settings

PRIVATE_ADDRESS = "private-person@example.com"
PASSWORD = "open-sesame"


def build_url(scripted_server: ScriptedSmtpServer, login: str = "") -> str:
    return f"smtp://{login}{LOOPBACK}:{scripted_server.port}"


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        ("RCPT", f"550 5.1.1 no such user {PRIVATE_ADDRESS}"),
        ("RCPT", "501 bad address"),
        ("RCPT", "554 5.7.1 relay access denied"),
        ("END", f"554 5.7.1 spam for {PRIVATE_ADDRESS}"),
        ("DATA", "554 no"),
        ("MAIL", "552 too large"),
    ],
)
def test_permanent_smtp_error_for_recipient_or_message_is_not_retried(
    scripted_server: ScriptedSmtpServer, verb: str, answer: str
) -> None:
    scripted_server.answers[verb] = answer
    with pytest.raises(DomainError) as error:
        build_mailer(build_url(scripted_server)).send(build_mail(PRIVATE_ADDRESS))
    assert error.value.code == "mail.refused"
    assert answer[:3] in str(error.value)
    assert PRIVATE_ADDRESS not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        ("RCPT", f"450 4.2.1 busy {PRIVATE_ADDRESS}"),
        ("RCPT", "421 closing"),
        ("RCPT", None),
        ("RCPT", "what?"),
        ("RCPT", "530 5.7.0 authentication required"),
        ("MAIL", f"550 5.7.1 sender refused, for {PRIVATE_ADDRESS}"),
        ("MAIL", "530 5.7.0 must issue STARTTLS first"),
        ("MAIL", "451 later"),
        ("DATA", "451 later"),
        ("END", f"452 4.3.1 full, {PRIVATE_ADDRESS}"),
        ("END", None),
        ("EHLO", None),
    ],
)
def test_transient_or_configuration_smtp_error_is_retried(
    scripted_server: ScriptedSmtpServer, verb: str, answer: str | None
) -> None:
    scripted_server.answers[verb] = answer
    with pytest.raises(TransientError) as error:
        build_mailer(build_url(scripted_server)).send(build_mail(PRIVATE_ADDRESS))
    assert PRIVATE_ADDRESS not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize("greeting", ["554 not you", "421 too busy", None, "hello"])
def test_mail_is_retried_if_the_server_does_not_greet_with_220(
    scripted_server: ScriptedSmtpServer, greeting: str | None
) -> None:
    scripted_server.greeting = greeting
    with pytest.raises(TransientError):
        build_mailer(build_url(scripted_server)).send(build_mail())


@pytest.mark.parametrize("silent_after", ["EHLO", "RCPT", "DATA"])
def test_mail_is_retried_if_the_server_stops_responding(
    scripted_server: ScriptedSmtpServer, silent_after: str
) -> None:
    scripted_server.silent_after = silent_after
    with pytest.raises(TransientError):
        build_mailer(build_url(scripted_server), timeout=0.1).send(build_mail())


@pytest.mark.parametrize("farewell", ["500 no", None, "what?"])
def test_accepted_mail_is_sent_even_if_the_server_fails_afterwards(
    scripted_server: ScriptedSmtpServer, farewell: str | None
) -> None:
    scripted_server.answers["QUIT"] = farewell
    build_mailer(build_url(scripted_server)).send(build_mail())
    assert len(scripted_server.messages) == 1


def test_mail_is_retried_if_the_server_is_unreachable() -> None:
    with socket.create_server((LOOPBACK, 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(TransientError):
        build_mailer(f"smtp://{LOOPBACK}:{port}").send(build_mail())
    with pytest.raises(TransientError):
        build_mailer("smtp://nowhere.invalid").send(build_mail())


def test_mail_login_is_decoded_from_the_server_url(scripted_server: ScriptedSmtpServer) -> None:
    scripted_server.extensions = ("AUTH PLAIN",)
    scripted_server.answers["AUTH"] = "235 welcome"
    build_mailer(build_url(scripted_server, "us%40example.com:p%2Fw@")).send(build_mail())
    # base64 of NUL us@example.com NUL p/w
    assert "AUTH PLAIN AHVzQGV4YW1wbGUuY29tAHAvdw==" in scripted_server.received_commands


@pytest.mark.parametrize(
    ("extension", "answer"),
    [
        ("AUTH PLAIN LOGIN", "535 5.7.8 who are you"),
        ("AUTH PLAIN", "454 4.7.0 try later"),
        ("AUTH CRAM-MD5", "334 not base64!"),
        ("SIZE 1000000", "500 unheard of"),
    ],
)
def test_failed_mail_login_is_retried_and_never_reveals_the_password(
    scripted_server: ScriptedSmtpServer, extension: str, answer: str
) -> None:
    scripted_server.extensions = (extension,)
    scripted_server.answers["AUTH"] = answer
    with pytest.raises(TransientError) as error:
        build_mailer(build_url(scripted_server, f"pressroom:{PASSWORD}@")).send(build_mail())
    assert PASSWORD not in "".join(traceback.format_exception(error.value))
    assert scripted_server.messages == []


def test_mail_to_non_ascii_local_part_is_rejected_without_smtputf8_support(
    scripted_server: ScriptedSmtpServer,
) -> None:
    with pytest.raises(DomainError) as error:
        build_mailer(build_url(scripted_server)).send(build_mail(new_address("δοκιμή")))
    assert error.value.code == "mail.refused"
    assert not any(command.startswith("MAIL") for command in scripted_server.received_commands)


def test_mail_client_greets_with_the_domain_of_the_sender(
    scripted_server: ScriptedSmtpServer,
) -> None:
    build_mailer(build_url(scripted_server)).send(build_mail())
    assert scripted_server.received_commands[0].lower() == "ehlo pressroom.example"


def test_mail_without_configured_server_is_retried_with_the_setting_name() -> None:
    with pytest.raises(TransientError, match="PRESSROOM_MAIL_URL is not set"):
        create_mailer(settings()).send(build_mail())


def test_mail_settings_choose_server_and_sender(scripted_server: ScriptedSmtpServer) -> None:
    mail_settings = settings(mail_url=build_url(scripted_server), mail_from="Us <us@example.org>")
    create_mailer(mail_settings).send(build_mail())
    assert "MAIL FROM:<us@example.org>" in scripted_server.received_commands
    assert b"From: Us <us@example.org>\r\n" in scripted_server.messages[0]
