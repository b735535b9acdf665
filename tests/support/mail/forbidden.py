"""A mailer for mails that must not be sent."""


class ForbiddenMailer:
    """Fails the test when the product sends a mail."""

    def send(self, mail: object) -> None:
        raise AssertionError(f"sent {mail}")
