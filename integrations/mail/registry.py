"""The mailer that the settings name."""

from core.errors import TransientError
from core.settings import Settings
from core.settings.mail_server import MailSender, MailServer
from integrations.mail.port import Mail, Mailer
from integrations.mail.smtp import SmtpMailer


class UnconfiguredMailer:
    """Sends nothing and loses nothing: mail is tried again until a server is configured."""

    def send(self, mail: Mail) -> None:
        raise TransientError("PRESSROOM_MAIL_URL is not set: mail waits until it is.")


def mailer(settings: Settings) -> Mailer:
    """Make it once a process."""
    if settings.mail_url is None:
        return UnconfiguredMailer()
    server = MailServer.parse(settings.mail_url.get_secret_value())
    return SmtpMailer(server, MailSender.parse(settings.mail_from))
