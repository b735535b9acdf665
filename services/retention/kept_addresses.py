"""How long IP addresses of subscribers are kept whole; the rows that hold them stay for longer."""

from sqlalchemy import func, select

import models
from core.settings.retention_days import Retained
from services.retention.retention_rules import Rule

# The upkeep that shortens the addresses of events notes there how far it came.
_SHORTENED_UP_TO = (
    select(func.coalesce(models.Upkeep.bookmark, 0))
    .where(models.Upkeep.name == "maintenance.shorten_ips")
    .scalar_subquery()
)

ADDRESS_RULES = (
    Rule(
        "subscription_events.ip",
        models.SubscriptionEvent,
        Retained.IP_ADDRESSES,
        "after the change; then its /24 (of IPv6: /64) alone",
        models.SubscriptionEvent.created_at,
        only=(
            models.SubscriptionEvent.ip.is_not(None),
            func.strpos(models.SubscriptionEvent.ip, "/") == 0,
        ),
        oldest_by=(models.SubscriptionEvent.id,),
        oldest_from=(models.SubscriptionEvent.id > _SHORTENED_UP_TO,),
        is_purged=False,
    ),
    Rule(
        "consent_entries.ip",
        models.ConsentEntry,
        Retained.IP_ADDRESSES,
        "after the act; then its /24 (of IPv6: /48) alone, as long as the entry: until the person "
        "is erased",
        models.ConsentEntry.occurred_at,
        only=(func.strpos(models.ConsentEntry.ip, "/") == 0,),
        is_purged=False,
    ),
    Rule(
        "consent_claims.ip",
        models.ConsentClaim,
        Retained.IP_ADDRESSES,
        "after the claimed moment; then its /24 (of IPv6: /48) alone, as long as the claim: until "
        "its import is undone or the person is erased",
        models.ConsentClaim.occurred_at,
        only=(func.strpos(models.ConsentClaim.ip, "/") == 0,),
        is_purged=False,
    ),
)
