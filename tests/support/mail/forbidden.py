"""A mailer for tests in which the product must not send any mail."""


class ForbiddenMailer:
    def send(self, mail: object) -> None:
        raise AssertionError(f"sent {mail}")
