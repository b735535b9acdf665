import re
from email import message_from_bytes

from core.settings.mail_server import MailSender
from integrations.mail.message import compose
from integrations.mail.port import Mail

SENDER = MailSender.parse("Pressroom <news@example.com>")


def message_id(mail: Mail) -> str:
    return str(message_from_bytes(compose(mail, SENDER, mail.to))["Message-ID"])


def test_a_mail_that_is_sent_twice_can_be_told_by_its_id() -> None:
    mail = Mail("a@example.org", "Hello", "text", "<p>html</p>", key="job-7")
    assert message_id(mail) == message_id(mail) == "<job-7@example.com>"


def test_a_mail_without_a_key_has_an_id_of_its_own() -> None:
    mail = Mail("a@example.org", "Hello", "text", "<p>html</p>")
    assert message_id(mail) != message_id(mail)
    assert re.fullmatch(r"<\S+@example\.com>", message_id(mail))
