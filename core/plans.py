from enum import StrEnum


class Plan(StrEnum):
    """The plan of a user, which decides their quotas (``services.access.quotas``)."""

    FREE = "free"
    PAID = "paid"
