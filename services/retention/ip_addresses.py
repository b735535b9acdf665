"""IP addresses of subscribers: after a while the network stays, and no more.

That is enough to show from where a person agreed, and too little to find them.
"""

from datetime import timedelta

from sqlalchemy import text

from core.lanes import Lane
from core.settings.retention_days import Retained
from services.jobs import upkeep
from storage.resources import Resources

SHORTEN_IP_ADDRESSES = upkeep.register(
    upkeep.UpkeepKind("maintenance.shorten_ips", every=timedelta(hours=1), lane=Lane.UPKEEP)
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


# Rows of consent are found by an index of the addresses that are whole.
_SHORTEN_CONSENT = text("SELECT shorten_consent_ips(:days, :most)")


def shorten(resources: Resources) -> int:
    """Cut old IP addresses to their network; how many they were.

    Of events it is the /24 or /64, and of consent, which is kept for longer, the /24 or /48.
    """
    return _shorten_events(resources) + _shorten_consent(resources)


def _shorten_consent(resources: Resources) -> int:
    days, total = resources.settings.retention[Retained.IP_ADDRESSES], 0
    while True:
        with resources.unit_of_work() as uow:
            # A function of the owner's: the application may change no row of consent.
            batch = {"days": days, "most": _MAX_BATCH_ROWS}
            shortened = uow.session.scalar(_SHORTEN_CONSENT, batch)
        if not shortened:
            return total
        total += shortened


def _shorten_events(resources: Resources) -> int:
    total = 0
    age = timedelta(days=resources.settings.retention[Retained.IP_ADDRESSES])
    while True:
        with resources.unit_of_work() as uow:
            after = upkeep.bookmark(uow, SHORTEN_IP_ADDRESSES) or 0
            bounds = {"after": after, "limit": _MAX_BATCH_ROWS, "age": age}
            last = uow.session.scalar(_LAST_OLD_EVENT, bounds)
            if last is None:
                return total
            shortened = uow.session.execute(_SHORTEN, {"after": after, "last": last})
            total += len(shortened.all())
            upkeep.set_bookmark(uow, SHORTEN_IP_ADDRESSES, last)
