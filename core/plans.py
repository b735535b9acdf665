from enum import StrEnum


class Plan(StrEnum):
    """What a user pays for, which decides their quotas (``services.access.quotas``)."""

    FREE = "free"
    PAID = "paid"
