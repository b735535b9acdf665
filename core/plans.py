from enum import StrEnum


class Plan(StrEnum):
    """The plan of a user. The plan determines the user's quotas (``services.access.quotas``)."""

    FREE = "free"
    PAID = "paid"
