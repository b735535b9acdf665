from collections.abc import Callable, Iterator

from cli.doctor.diagnoses import CheckAnswer, Part, fine, skipped
from core.settings import Settings
from core.settings.mail_server import MailSender, MailServer
from integrations.mail.port import Mail
from integrations.mail.smtp import SmtpMailer

# Less than a mail may take: the whole examination has little more.
_MAX_SECONDS = 10.0
_TEXT = "This mail was sent by pressroom doctor. Mail works."


def mail_part(send_to: str | None) -> Part:
    """``send_to``: the address that gets a mail; without it the server is only logged in to."""
    return Part("mail", _asking(send_to))


def _asking(send_to: str | None) -> Callable[[Settings], Iterator[CheckAnswer]]:
    def ask(settings: Settings) -> Iterator[CheckAnswer]:
        if settings.mail_url is None:
            advice = "Ask where mail is sent from: a worker of the lane mail."
            yield skipped("login", "PRESSROOM_MAIL_URL is not set for this process", advice)
            return
        server = MailServer.parse(settings.mail_url.get_secret_value())
        sender = MailSender.parse(settings.mail_from)
        mailer = SmtpMailer(server, sender, timeout=_MAX_SECONDS)
        mailer.log_in()
        login = "logged in to" if server.login else "no login is asked of us by"
        yield fine("login", f"{login} {server.host}:{server.port}, {server.security}")
        if send_to is None:
            yield skipped("sending", "nothing was sent", "Give --send ADDRESS for a mail.")
            return
        mailer.send(Mail(send_to, "Pressroom sends mail", _TEXT, f"<p>{_TEXT}</p>"))
        yield fine("sending", f"the server took a mail to {send_to}, from {sender.address}")

    return ask
