"""The configured mail server."""

from core.errors import TransientError
from core.settings import Settings
from core.settings.mail_server import MailSender, MailServer
from integrations.mail.port import Mail, Mailer
from integrations.mail.smtp import SmtpMailer


class UnconfiguredMailer:
    """A mailer that retries every mail until the operator configures a mail server."""

    def send(self, mail: Mail) -> None:
        raise TransientError("PRESSROOM_MAIL_URL is not set. Mail is sent when it is set.")


def create_mailer(settings: Settings) -> Mailer:
    """Return a new mailer. A process needs only one mailer."""
    if settings.mail_url is None:
        return UnconfiguredMailer()
    server = MailServer.parse(settings.mail_url.get_secret_value())
    return SmtpMailer(server, MailSender.parse(settings.mail_from))
