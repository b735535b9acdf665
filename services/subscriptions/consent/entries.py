"""Records consent entries, each of which states what a person agreed to, and how."""

import ipaddress
from collections.abc import Mapping

from sqlalchemy import exists, select

from models import ConsentEntry, ConsentHow, MailingList, Subscription
from storage.unit_of_work import UnitOfWork

# Kinds of consent entries that record an action by the list's owner and don't prove the person's
# consent.
_OWNER_KINDS = frozenset({ConsentHow.OWNER, ConsentHow.IMPORT, ConsentHow.TRANSFER})
# Kinds of consent entries that prove that the owner of the address wanted to join the list.
_CONFIRMED_KINDS = (ConsentHow.CONFIRMATION, ConsentHow.LOGIN, ConsentHow.LINK)
# Maps the channel of a request (``Via``) to the kind of consent entry that is recorded.
HOW_BY_VIA: Mapping[str, ConsentHow] = {
    "login": ConsentHow.LOGIN,
    "challenge": ConsentHow.FORM,
    "form": ConsentHow.FORM,
    "confirmation": ConsentHow.CONFIRMATION,
    "trace": ConsentHow.LINK,
    "one-click": ConsentHow.LINK,
    "page": ConsentHow.LINK,
    "import": ConsentHow.IMPORT,
    # A command that the operator runs counts as an action by the list's owner.
    "command": ConsentHow.OWNER,
    # If the undo of a bulk action restores a removed member, a consent entry is recorded.
    "bulk": ConsentHow.OWNER,
}
# How many bits of an IPv4 or IPv6 address are kept when only its network is stored.
# ``_NETWORK_PREFIX_BITS`` must contain the same numbers as the database function ``network_of_ip``.
_NETWORK_PREFIX_BITS = {4: 24, 6: 48}


def record_entry(
    uow: UnitOfWork,
    subscription: Subscription,
    how: ConsentHow,
    *,
    ip: str | None,
    url: str | None,
    browser: str | None,
    origin: Mapping[str, str] | None,
) -> None:
    """Omit the details of the request if the list's owner added the person."""
    entry = ConsentEntry(list_id=subscription.list_id, user_id=subscription.user_id, how=how)
    if how not in _OWNER_KINDS:
        entry.ip = normalise_ip(ip)
        entry.url = url
        entry.browser = browser
        entry.origin = dict(origin) if origin else None
        # Read the version of the wording from the database, because the ``MailingList`` object may
        # be outdated.
        version = select(MailingList.consent_wording_version).where(
            MailingList.id == subscription.list_id
        )
        entry.wording_version = version.scalar_subquery()
    uow.session.add(entry)


def record_engagement(
    uow: UnitOfWork,
    subscription: Subscription,
    how: ConsentHow,
    *,
    wording: str,
    ip: str | None,
    url: str | None,
    browser: str | None,
) -> None:
    """Record that the person allowed the list to record opens and clicks."""
    uow.session.add(
        ConsentEntry(
            list_id=subscription.list_id,
            user_id=subscription.user_id,
            how=how,
            ip=normalise_ip(ip),
            url=url,
            browser=browser,
            engagement_wording=wording,
        )
    )


def has_confirmed_entry(uow: UnitOfWork, subscription: Subscription) -> bool:
    """Return whether an entry proves that the owner of the address wanted to join."""
    query = select(
        exists().where(
            ConsentEntry.user_id == subscription.user_id,
            ConsentEntry.list_id == subscription.list_id,
            ConsentEntry.how.in_(_CONFIRMED_KINDS),
            ConsentEntry.engagement_wording.is_(None),
        )
    )
    return bool(uow.session.scalar(query))


def normalise_ip(text: str | None) -> str | None:
    """Accept networks, because exports replace old IP addresses by networks."""
    ip = (text or "").strip()
    try:
        network = ipaddress.ip_network(ip, strict=False)
    except ValueError:
        return None
    # Reject IPv6 addresses with a zone index, which are only valid on one machine.
    if "%" in ip:
        return None
    if network.prefixlen == network.max_prefixlen:
        return str(network.network_address)
    # Replace a small network with a larger one, because a small network could identify a person.
    prefix = min(network.prefixlen, _NETWORK_PREFIX_BITS[network.version])
    return str(network.supernet(new_prefix=prefix))
