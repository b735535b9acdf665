"""Counts of the people who came onto a list from one IP network."""

from collections.abc import Collection, Mapping

from sqlalchemy import text

from models import Subscription
from services.subscriptions.consent.evidence import ConsentShown
from storage.unit_of_work import UnitOfWork

MAX_OTHERS = 1_000
# By an index that has people of one network side by side, so the first ones are enough.
_OTHERS = text("""
SELECT asked.ip, (
    SELECT count(*) FROM (
        SELECT DISTINCT e.user_id FROM consent_entries AS e
        WHERE e.list_id = :list_id AND e.ip IS NOT NULL
            AND network_of_ip(e.ip) = network_of_ip(asked.ip) AND e.user_id <> :user_id
        LIMIT :most
    ) AS people
) AS others
FROM unnest(CAST(:ips AS text[])) AS asked (ip)
""")


def others_of_networks(
    uow: UnitOfWork, member: Subscription, found: Collection[ConsentShown]
) -> Mapping[str, int]:
    """How many other people came onto the member's list from the network of each address.

    At most ``MAX_OTHERS`` are counted.
    """
    ips = {each.ip for each in found if each.ip is not None and each.claimed_by is None}
    if not ips:
        return {}
    values = {"ips": sorted(ips), "list_id": member.list_id, "user_id": member.user_id}
    rows = uow.session.execute(_OTHERS, {**values, "most": MAX_OTHERS})
    return {row.ip: row.others for row in rows}


_MOST = text("""
SELECT count(DISTINCT user_id) FROM consent_entries
WHERE list_id = :list_id AND ip IS NOT NULL
GROUP BY network_of_ip(ip) ORDER BY 1 DESC LIMIT 1
""")


def most_of_one_network(uow: UnitOfWork, list_id: int) -> int:
    """The most people who came onto the list from one network, for the operator."""
    return uow.session.scalar(_MOST, {"list_id": list_id}) or 0
