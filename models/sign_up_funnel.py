"""Daily figures about sign-ups: views of sign-up pages, and members who joined or left.

Members who joined or left are counted by the origin of their sign-up. An origin consists of values
such as the name of a campaign or the referring website. The tables contain no personal data.
"""

from datetime import date

from sqlalchemy import ForeignKey, Index, select
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model, SerialId

_ORIGIN_COLUMNS = (
    *("list_id", "day", "utm_source", "utm_medium", "utm_campaign", "referrer"),
    *("joined", "gone"),
)


class SignUpView(Model):
    """The number of requests for a list's sign-up page on one day in UTC, not counting bots."""

    __tablename__ = "sign_up_views"
    # Retention uses this index to find the oldest rows.
    __table_args__ = (Index(None, "day"),)

    list_id: Mapped[int] = mapped_column(
        ForeignKey("lists.id"), primary_key=True, autoincrement=False
    )
    day: Mapped[date] = mapped_column(primary_key=True)
    seen: Mapped[int]


class OriginDay(Model):
    """The numbers of members with the same origin who joined and left a list on one day in UTC.

    If a value of the origin is missing, the column contains an empty string. Members without an
    origin aren't counted. Queries must add the latest changes from ``origin_day_deltas``.
    """

    __tablename__ = "origin_days"

    list_id: Mapped[int] = mapped_column(
        ForeignKey("lists.id"), primary_key=True, autoincrement=False
    )
    day: Mapped[date] = mapped_column(primary_key=True)
    utm_source: Mapped[str] = mapped_column(primary_key=True)
    utm_medium: Mapped[str] = mapped_column(primary_key=True)
    utm_campaign: Mapped[str] = mapped_column(primary_key=True)
    referrer: Mapped[str] = mapped_column(primary_key=True)
    joined: Mapped[int]
    gone: Mapped[int]


class OriginDayDelta(Model):
    """A change of ``origin_days`` that maintenance hasn't added to that table yet.

    A database trigger writes the row.
    """

    __tablename__ = "origin_day_deltas"
    __table_args__ = (Index("ix_origin_day_deltas_list_id", "list_id"),)

    id: Mapped[SerialId]
    list_id: Mapped[int]
    day: Mapped[date]
    utm_source: Mapped[str]
    utm_medium: Mapped[str]
    utm_campaign: Mapped[str]
    referrer: Mapped[str]
    joined: Mapped[int]
    gone: Mapped[int]


# The rows of ``origin_days`` and ``origin_day_deltas``. Maintenance moves rows between both tables,
# so two separate queries could count a change twice or not at all.
ORIGINS_AND_DELTAS = (
    select(*(getattr(OriginDay, name) for name in _ORIGIN_COLUMNS))
    .union_all(select(*(getattr(OriginDayDelta, name) for name in _ORIGIN_COLUMNS)))
    .subquery()
)
