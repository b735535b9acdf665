import pytest
from pydantic import ValidationError

from core.settings import Settings
from core.settings.mail_server import MailSecurity, MailSender, MailServer, SmtpLogin


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://mail.example.com", MailServer("mail.example.com", 25, MailSecurity.NONE)),
        ("smtps://mail.example.com", MailServer("mail.example.com", 465, MailSecurity.TLS)),
        ("smtp+starttls://h/", MailServer("h", 587, MailSecurity.STARTTLS)),
        ("smtp://127.0.0.1:1025", MailServer("127.0.0.1", 1025, MailSecurity.NONE)),
        ("smtp://[::1]:25", MailServer("::1", 25, MailSecurity.NONE)),
        (
            "smtps://us%40example.com:p%2F%3Aw%25@h:2465",
            MailServer("h", 2465, MailSecurity.TLS, SmtpLogin("us@example.com", "p/:w%")),
        ),
    ],
)
def test_mail_url_is_parsed_into_host_port_security_and_login(url: str, server: MailServer) -> None:
    assert MailServer.parse(url) == server


@pytest.mark.parametrize(
    "url",
    [
        "http://secret@h",
        "mail.secret.example",
        "smtp://",
        "smtp://:25",
        "smtp://h:secret",
        "smtp://h:99999",
        "smtp://h:0",
        "smtp://h/secret",
        "smtp://h?secret=1",
        "smtp://h#secret",
        "smtp://[::1",
        "smtp://u:secret/password@h",
        "smtp://secret@h",
        "smtp://:secret@h",
        "smtp://u:sécret@h",
    ],
)
def test_invalid_mail_url_is_rejected_without_showing_its_secret(url: str) -> None:
    with pytest.raises(ValueError, match=r"^(must|may) ") as caught:
        MailServer.parse(url)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sender"),
    [
        ("news@example.com", MailSender("", "news@example.com")),
        ("<news@example.com>", MailSender("", "news@example.com")),
        ("Pressroom <pressroom@localhost>", MailSender("Pressroom", "pressroom@localhost")),
        ("St. John's, daily <n@example.com>", MailSender("St. John's, daily", "n@example.com")),
        ('"A, B" <a+b@example.com>', MailSender("A, B", "a+b@example.com")),
        ("Zeitung für alle <a@xn--kln-sna.de>", MailSender("Zeitung für alle", "a@xn--kln-sna.de")),
    ],
)
def test_mail_sender_accepts_address_with_or_without_display_name(
    text: str, sender: MailSender
) -> None:
    assert MailSender.parse(text) == sender


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Pressroom",
        "Pressroom news@example.com",
        "a@example.com, b@example.com",
        "A <a@example.com> B",
        "A <a@example.com>, B <b@example.com>",
        "a@b@example.com",
        "ü@example.com",
        "a@köln.example",
        "a@example.com.",
        "A\r\nBcc: b@example.com <a@example.com>",
        "A <a@example.com\n>",
    ],
)
def test_mail_sender_rejects_anything_but_one_address(text: str) -> None:
    with pytest.raises(ValueError, match="must be one address"):
        MailSender.parse(text)


@pytest.mark.parametrize("name", ["mail_url", "mail_from"])
def test_invalid_mail_setting_is_rejected_by_name_without_its_value(name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({name: "secret nonsense"})
    [problem] = [each for each in caught.value.errors() if each["loc"] == (name,)]
    assert problem["type"] == "value_error"
    assert "secret nonsense" not in str(caught.value)
