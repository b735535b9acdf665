"""Daily figures about sign-ups: views of sign-up pages, and members who joined or left.

The origin of a sign-up consists of values such as the name of a campaign or the referring website.
Daily figures about sign-ups contain no personal data.
"""

from datetime import date
from typing import Annotated

from sqlalchemy import ForeignKey, Index, select, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model, SerialId

_ORIGIN_COLUMNS = (
    "list_id",
    "day",
    "utm_source",
    "utm_medium",
    "utm_campaign",
    "referrer",
    "joined",
    "gone",
    "imported",
)
_LANDING_COLUMNS = ("list_id", "day", "landing", "joined", "gone", "imported")
# How many of ``joined`` first joined the list by an import. Joins before migration 0145 count as 0.
ImportedCount = Annotated[int, mapped_column(server_default=text("0"))]


class SignUpView(Model):
    """The number of requests for a list's sign-up page on one day in UTC, not counting bots."""

    __tablename__ = "sign_up_views"
    # The maintenance task that deletes old page view counts finds them with this index.
    __table_args__ = (Index(None, "day"),)

    list_id: Mapped[int] = mapped_column(
        ForeignKey("lists.id"), primary_key=True, autoincrement=False
    )
    day: Mapped[date] = mapped_column(primary_key=True)
    seen: Mapped[int]


class OriginDay(Model):
    """How many members with the same sign-up origin joined and how many left a list on one day.

    Days begin at midnight in UTC. A missing campaign name, for example, is an empty string in
    ``utm_campaign``. The table doesn't count members whose sign-up has no known origin. Queries
    must also read ``origin_day_deltas``.
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
    imported: Mapped[ImportedCount]


class OriginDayDelta(Model):
    """Changes of member counts that maintenance hasn't added to ``origin_days`` yet.

    A database trigger and the undo of an import insert the rows.
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
    imported: Mapped[ImportedCount]


class LandingDay(Model):
    """How many members who signed up on the same page joined and how many left on one day in UTC.

    The page is ``landing`` in a member's origin. Queries must also read ``landing_day_deltas``.
    """

    __tablename__ = "landing_days"

    list_id: Mapped[int] = mapped_column(
        ForeignKey("lists.id"), primary_key=True, autoincrement=False
    )
    day: Mapped[date] = mapped_column(primary_key=True)
    landing: Mapped[str] = mapped_column(primary_key=True)
    joined: Mapped[int]
    gone: Mapped[int]
    imported: Mapped[ImportedCount]


class LandingDayDelta(Model):
    """Changes of member counts that maintenance hasn't added to ``landing_days`` yet."""

    __tablename__ = "landing_day_deltas"
    __table_args__ = (Index("ix_landing_day_deltas_list_id", "list_id"),)

    id: Mapped[SerialId]
    list_id: Mapped[int]
    day: Mapped[date]
    landing: Mapped[str]
    joined: Mapped[int]
    gone: Mapped[int]
    imported: Mapped[ImportedCount]


# A subquery that returns all rows of the tables ``origin_days`` and ``origin_day_deltas``. A single
# query must read both tables, because maintenance could move a change from ``origin_day_deltas`` to
# ``origin_days`` between two queries.
ORIGINS_AND_DELTAS = (
    select(*(getattr(OriginDay, name) for name in _ORIGIN_COLUMNS))
    .union_all(select(*(getattr(OriginDayDelta, name) for name in _ORIGIN_COLUMNS)))
    .subquery()
)
LANDINGS_AND_DELTAS = (
    select(*(getattr(LandingDay, name) for name in _LANDING_COLUMNS))
    .union_all(select(*(getattr(LandingDayDelta, name) for name in _LANDING_COLUMNS)))
    .subquery()
)
