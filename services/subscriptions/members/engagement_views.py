"""Reads the engagement of members, and their answers whether a list may record it.

The values are JSON objects, because pages with a thousand members contain them unchanged.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import text

from models import Subscription
from services.subscriptions.members.bounces import IS_IN_EFFECT
from storage.unit_of_work import UnitOfWork


class EngagementView(NamedTuple):
    """The fields ``engagement`` and ``engagement_choice`` of a subscription."""

    engagement: dict[str, Any] | None = None
    engagement_choice: dict[str, Any] | None = None


def build_engagement_query(member: str) -> str:
    """Build a subquery. ``member``: the name or an alias of the table ``subscriptions``.

    Soft bounces count in every mode, but are part of the engagement.
    """
    days = ("delivered", "opened", "machine_opened", "clicked")
    counts = ("delivered", "opens", "machine_opens", "clicks")
    pairs = [
        "'measured_since', e.measured_since",
        *(f"'{name}', e.{name}" for name in counts),
        *(f"'last_{name}', e.last_{name}" for name in days),
    ]
    bounces = "FROM bounces AS b WHERE b.list_id = e.list_id AND b.user_id = e.user_id"
    return f"""(
    SELECT jsonb_build_object({", ".join(pairs)},
        'bounces', (SELECT count(*) {bounces} AND {IS_IN_EFFECT} AND NOT is_hard),
        'last_bounced', (SELECT CAST(max(bounced_at) AT TIME ZONE 'UTC' AS date) {bounces}))
    FROM member_engagement AS e JOIN lists AS l ON l.id = e.list_id
    WHERE e.list_id = {member}.list_id AND e.user_id = {member}.user_id
        AND {member}.status = 'active' AND l.engagement <> 'off' AND coalesce((
            SELECT is_allowed FROM engagement_answers AS a
            WHERE a.list_id = e.list_id AND a.user_id = e.user_id
        ), l.engagement = 'all'))"""  # noqa: S608 - no input


def build_choice_query(member: str) -> str:
    """Build a subquery. ``member``: the name or an alias of the table ``subscriptions``."""
    return f"""(
    SELECT jsonb_build_object('answer', CASE WHEN a.is_allowed THEN 'yes' ELSE 'no' END,
        'at', to_char(a.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
    FROM engagement_answers AS a
    WHERE a.list_id = {member}.list_id AND a.user_id = {member}.user_id)"""  # noqa: S608 - no input


_READ_VIEWS = text(f"""
SELECT m.id, {build_engagement_query("m")}, {build_choice_query("m")}
FROM subscriptions AS m WHERE m.id = ANY (CAST(:ids AS bigint[]))
""")  # noqa: S608 - no input


def read_views(uow: UnitOfWork, records: Iterable[Subscription]) -> Mapping[int, EngagementView]:
    """Map the ids of subscriptions to the views."""
    ids = [record.id for record in records]
    rows = uow.session.execute(_READ_VIEWS, {"ids": ids}) if ids else ()
    return {subscription_id: EngagementView(*values) for subscription_id, *values in rows}


def read_view(uow: UnitOfWork, record: Subscription) -> EngagementView:
    return read_views(uow, [record])[record.id]
