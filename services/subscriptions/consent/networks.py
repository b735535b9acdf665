"""Counts how many people joined a list from the same IP network."""

from collections.abc import Collection, Mapping

from sqlalchemy import text

from models import Subscription
from services.subscriptions.consent.evidence import ConsentEvidence
from storage.unit_of_work import UnitOfWork

MAX_COUNTED_PEOPLE = 1_000
# Postgres can stop after ``MAX_COUNTED_PEOPLE`` people, because the index on ``consent_entries`` is
# sorted by list, network and person.
_COUNT_OTHERS = text("""
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
_COUNT_LARGEST_NETWORK = text("""
SELECT count(DISTINCT user_id) FROM consent_entries
WHERE list_id = :list_id AND ip IS NOT NULL
GROUP BY network_of_ip(ip) ORDER BY 1 DESC LIMIT 1
""")


def count_people_by_network(
    uow: UnitOfWork, member: Subscription, evidence: Collection[ConsentEvidence]
) -> Mapping[str, int]:
    """Map the member's IP addresses to the number of other people in the same network.

    The numbers are at most ``MAX_COUNTED_PEOPLE``. Claimed addresses are ignored, because Pressroom
    did not observe them.
    """
    ips = {each.ip for each in evidence if each.ip is not None and each.claimed_by is None}
    if not ips:
        return {}
    values = {
        "ips": sorted(ips),
        "list_id": member.list_id,
        "user_id": member.user_id,
        "most": MAX_COUNTED_PEOPLE,
    }
    return {row.ip: row.others for row in uow.session.execute(_COUNT_OTHERS, values)}


def count_largest_network(uow: UnitOfWork, list_id: int) -> int:
    return uow.session.scalar(_COUNT_LARGEST_NETWORK, {"list_id": list_id}) or 0
