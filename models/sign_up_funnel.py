"""Daily figures about sign-ups: the views of sign-up pages, and the changes by origin.

No row contains data that identifies a person.
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
    """How often a list's sign-up page was requested on one day (UTC).

    Requests by known programs aren't counted.
    """

    __tablename__ = "sign_up_views"
    # Retention uses this index to find the oldest rows.
    __table_args__ = (Index(None, "day"),)

    list_id: Mapped[int] = mapped_column(
        ForeignKey("lists.id"), primary_key=True, autoincrement=False
    )
    day: Mapped[date] = mapped_column(primary_key=True)
    seen: Mapped[int]


class OriginDay(Model):
    """How many members with the same origin joined and left a list on one day (UTC).

    A missing value of the origin is an empty string. Members without an origin aren't counted.
    To include the latest changes, queries must add the rows of ``origin_day_deltas``.
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
    """A change that maintenance hasn't added to ``origin_days`` yet.

    A database trigger writes the rows of ``origin_day_deltas``.
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


# Read both tables in a single statement, because two statements could count a change twice or not
# at all.
ORIGINS_AND_DELTAS = (
    select(*(getattr(OriginDay, name) for name in _ORIGIN_COLUMNS))
    .union_all(select(*(getattr(OriginDayDelta, name) for name in _ORIGIN_COLUMNS)))
    .subquery()
)
