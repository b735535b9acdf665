"""A mailer for tests in which the product must not send any mail."""


class ForbiddenMailer:
    """A mailer that makes the test fail if the product sends a mail."""

    def send(self, mail: object) -> None:
        raise AssertionError(f"sent {mail}")
