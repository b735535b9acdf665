"""Replaces old IP addresses with network addresses every hour.

A network address still shows where a person's consent came from, but doesn't identify the person.
"""

from datetime import timedelta

from sqlalchemy import text

from core.settings.notations import Retained
from services.jobs import maintenance
from services.jobs.maintenance import register_maintenance
from storage.resources import Resources

SHORTEN_IP_ADDRESSES = register_maintenance(
    "maintenance.shorten_ips",
    every=timedelta(hours=1),
    run=lambda resources, _: shorten_ip_addresses(resources),
)
_MAX_BATCH_ROWS = 10_000


def shorten_ip_addresses(resources: Resources) -> int:
    """Replace old IP addresses with network addresses, and return the number of replacements.

    IPv4 addresses become /24 networks. IPv6 addresses become /64 networks in events, or /48
    networks in consent entries.
    """
    age_days = resources.settings.retention[Retained.IP_ADDRESSES]
    return _shorten_events(resources, age_days) + _shorten_consent(resources, age_days)


# Selects the last event of the next batch. Event ids rise with time, so each batch begins after the
# last event of the previous batch.
_LAST_OLD_EVENT = text("""
WITH batch AS (
    SELECT id, created_at FROM subscription_events WHERE id > :after ORDER BY id LIMIT :limit
)
SELECT max(id) FROM batch WHERE id < coalesce(
    (SELECT min(id) FROM batch WHERE created_at >= now() - :age), 9223372036854775807)
""")
_SHORTEN_EVENTS = text("""
UPDATE subscription_events SET ip = CASE WHEN pg_input_is_valid(ip, 'inet') THEN
    text(network(set_masklen(ip::inet, CASE family(ip::inet) WHEN 4 THEN 24 ELSE 64 END))) END
WHERE id > :after AND id <= :last AND ip IS NOT NULL AND strpos(ip, '/') = 0
RETURNING 1
""")


def _shorten_events(resources: Resources, age_days: int) -> int:
    total = 0
    while True:
        with resources.unit_of_work() as uow:
            after = maintenance.read_bookmark(uow, SHORTEN_IP_ADDRESSES) or 0
            bounds = {"after": after, "limit": _MAX_BATCH_ROWS, "age": timedelta(days=age_days)}
            last = uow.session.scalar(_LAST_OLD_EVENT, bounds)
            if last is None:
                return total
            shortened = uow.session.execute(_SHORTEN_EVENTS, {"after": after, "last": last})
            total += len(shortened.all())
            maintenance.write_bookmark(uow, SHORTEN_IP_ADDRESSES, last)


# A database function replaces the IP addresses in consent entries and claims, because Pressroom's
# database role isn't allowed to change them.
_SHORTEN_CONSENT = text("SELECT shorten_consent_ips(:days, :most)")


def _shorten_consent(resources: Resources, age_days: int) -> int:
    total = 0
    batch = {"days": age_days, "most": _MAX_BATCH_ROWS}
    while True:
        with resources.unit_of_work() as uow:
            shortened = uow.session.scalar(_SHORTEN_CONSENT, batch) or 0
        total += shortened
        if not shortened:
            return total
