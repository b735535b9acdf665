"""Shortens old IP addresses to their network, every hour."""

from datetime import timedelta

from sqlalchemy import (
    text,
)

from core.settings.notations import Retained
from services.jobs import maintenance
from storage.resources import Resources

SHORTEN_IP_ADDRESSES = maintenance.register(
    "maintenance.shorten_ips", every=timedelta(hours=1), run=lambda resources, _: shorten(resources)
)
_MAX_BATCH_ROWS = 10_000
# Ids rise with time, so the old events are the first ones behind the bookmark.
_LAST_OLD_EVENT = text("""
WITH batch AS (
    SELECT id, created_at FROM subscription_events WHERE id > :after ORDER BY id LIMIT :limit
)
SELECT max(id) FROM batch WHERE id < coalesce(
    (SELECT min(id) FROM batch WHERE created_at >= now() - :age), 9223372036854775807)
""")
_SHORTEN = text("""
UPDATE subscription_events SET ip = CASE WHEN pg_input_is_valid(ip, 'inet') THEN
    text(network(set_masklen(ip::inet, CASE family(ip::inet) WHEN 4 THEN 24 ELSE 64 END))) END
WHERE id > :after AND id <= :last AND ip IS NOT NULL AND strpos(ip, '/') = 0
RETURNING 1
""")
# Rows of consent, which the application may not change, are found by an index of whole addresses.
_SHORTEN_CONSENT = text("SELECT shorten_consent_ips(:days, :most)")


def shorten(resources: Resources) -> int:
    """Cut old IP addresses to their /24 (of IPv6: /64, of consent /48); how many they were."""
    days, total = resources.settings.retention[Retained.IP_ADDRESSES], 0
    while True:
        with resources.unit_of_work() as uow:
            after = maintenance.bookmark(uow, SHORTEN_IP_ADDRESSES) or 0
            bounds = {"after": after, "limit": _MAX_BATCH_ROWS, "age": timedelta(days=days)}
            last = uow.session.scalar(_LAST_OLD_EVENT, bounds)
            if last is None:
                break
            shortened = uow.session.execute(_SHORTEN, {"after": after, "last": last})
            total += len(shortened.all())
            maintenance.set_bookmark(uow, SHORTEN_IP_ADDRESSES, last)
    batch = {"days": days, "most": _MAX_BATCH_ROWS}
    while True:
        with resources.unit_of_work() as uow:
            entries = uow.session.scalar(_SHORTEN_CONSENT, batch) or 0
        total += entries
        if not entries:
            return total
