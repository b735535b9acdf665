from enum import StrEnum


class Plan(StrEnum):
    """Determines a user's quotas (``services.access.quotas``)."""

    FREE = "free"
    PAID = "paid"
