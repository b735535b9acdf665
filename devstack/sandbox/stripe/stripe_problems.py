from http import HTTPStatus


class StripeProblem(Exception):
    """A refusal of Stripe's, as its error object (docs.stripe.com/api/errors)."""

    def __init__(
        self,
        message: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        kind: str = "invalid_request_error",
        **more: str | None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"type": kind, "message": message, **more}}


def missing(what: str, given: str, param: str = "id") -> StripeProblem:
    message, code = f"No such {what}: '{given}'", "resource_missing"
    return StripeProblem(message, status=HTTPStatus.NOT_FOUND, code=code, param=param)
