from http import HTTPStatus


class StripeProblem(Exception):
    """A refusal of Stripe's, as its error object (docs.stripe.com/api/errors)."""

    def __init__(
        self,
        message: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        fields = {"type": kind, "code": code, "param": param, "message": message}
        self.body = {"error": {name: value for name, value in fields.items() if value is not None}}


def missing(what: str, given: str, param: str = "id") -> StripeProblem:
    return StripeProblem(
        f"No such {what}: '{given}'",
        status=HTTPStatus.NOT_FOUND,
        code="resource_missing",
        param=param,
    )
