"""Deny lists: addresses and domains from which an owner or the operator accepts no new members.

All code that adds a person to a list calls ``require_allowed`` or ``find_denied``. Unlike an
opt-out, a deny list entry doesn't affect existing members. When the entry is removed, the person
can join the list.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import delete, exists, func, select, text

from core.errors import FieldProblem
from core.errors.mailing import DENY_LIST_ENTRY, DENY_LIST_TOO_LONG, MEMBER_DENIED
from core.languages.shown_lines import strip_unseen
from core.logging import get_logger
from models import DeniedEntry, ErasedDenial
from services.accounts import email_addresses
from services.accounts.email_addresses import InvalidAddress
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

MAX_ENTRIES = 100_000
_PURPOSE = "denied-address"
_MAX_PROBLEMS = 100
_SUBDOMAINS = "*."
# Without the lock, two concurrent writers could exceed the maximum together.
_LOCK_DENY_LIST = text("SELECT pg_advisory_xact_lock(hashtext('deny_lists'), hashint8(:owner_id))")


@dataclass(frozen=True)
class DenyList:
    """The entries of an owner's deny list, normalised and sorted.

    ``erased`` is the number of denied addresses of people whose accounts were erased. Only a hash
    of such an address is stored.
    """

    addresses: Sequence[str] = ()
    domains: Sequence[str] = ()
    erased: int = 0


def normalise_entries(
    addresses: Sequence[str], domains: Sequence[str], *, verb: str = ""
) -> set[str]:
    """Return the normalised entries of a request's body.

    ``verb`` is the prefix of the body's fields, such as ``add_``. Raises ``deny_list.entry``, which
    lists the first hundred invalid entries.
    """
    problems: list[FieldProblem] = []

    def refuse(kind: str, number: int, rule: str) -> None:
        field = f"body.{verb}{kind}[{number}]"
        problems.append(FieldProblem(field, DENY_LIST_ENTRY.code, rule))

    entries: set[str] = set()
    for number, address in enumerate(email_addresses.normalise_addresses(addresses)):
        if isinstance(address, InvalidAddress):
            refuse("addresses", number, address.reason)
        else:
            entries.add(address)
    for number, written in enumerate(domains):
        domain = _domain(written)
        if domain is None:
            refuse("domains", number, "This is no domain, nor one after '*.'.")
        else:
            entries.add(domain)
    if problems:
        first = problems[0]
        named = tuple(problems[:_MAX_PROBLEMS])
        raise DENY_LIST_ENTRY(place=first.field, rule=first.message, problems=named)
    return entries


def _domain(written: str) -> str | None:
    """Return the normalised form of a domain, or of a pattern such as ``*.example.com``.

    Returns ``None`` if the text is neither a domain nor such a pattern.
    """
    written = strip_unseen(written)
    if not written.startswith(_SUBDOMAINS):
        return email_addresses.normalise_domain(written)
    # The text after the star may be a top-level domain, which can't be the domain of an address.
    domain = email_addresses.normalise_domain(f"a{written[1:]}")
    return domain and f"*{domain[1:]}"


def read_deny_list(uow: UnitOfWork, owner_id: int) -> DenyList:
    entries = sorted(_entries_of(uow, owner_id))
    addresses = [entry for entry in entries if "@" in entry]
    domains = [entry for entry in entries if "@" not in entry]
    erased = select(func.count()).where(ErasedDenial.user_id == owner_id)
    return DenyList(addresses, domains, uow.session.scalar(erased) or 0)


def _entries_of(uow: UnitOfWork, owner_id: int) -> Sequence[str]:
    query = select(DeniedEntry.entry).where(DeniedEntry.user_id == owner_id)
    return uow.session.scalars(query).all()


def replace_entries(uow: UnitOfWork, owner_id: int, entries: Collection[str]) -> int:
    """Replace all entries that the owner can see; return the number of changed entries.

    Erased people stay denied, because the owner can't see their addresses and include them again.
    Raises ``deny_list.too_long``.
    """
    uow.session.execute(_LOCK_DENY_LIST, {"owner_id": owner_id})
    before = set(_entries_of(uow, owner_id))
    return change_entries(uow, owner_id, add={*entries} - before, remove=before - {*entries})


def change_entries(
    uow: UnitOfWork, owner_id: int, *, add: Collection[str], remove: Collection[str]
) -> int:
    """Add and remove entries; return the number of changed entries.

    An address can also be removed if its person was erased after the address was added. Raises
    ``deny_list.too_long``.
    """
    uow.session.execute(_LOCK_DENY_LIST, {"owner_id": owner_id})
    add = {*add} - {*remove}
    if len(add) > MAX_ENTRIES:
        raise DENY_LIST_TOO_LONG(most=MAX_ENTRIES)
    values = {"owner_id": owner_id, "gone": sorted({*remove}), "added": sorted(add)}
    gone = uow.session.scalar(_REMOVE, values) if remove else 0
    added = uow.session.scalar(_ADD, values) if add else 0
    erased = _erased_among(uow, owner_id, {*add, *remove})
    uow.session.execute(
        delete(ErasedDenial).where(
            ErasedDenial.user_id == owner_id, ErasedDenial.address_hmac.in_(erased)
        )
    )
    erased_and_removed = {*erased.values()} & {*remove}
    counted = select(func.count()).where(DeniedEntry.user_id == owner_id)
    if added and (uow.session.scalar(counted) or 0) > MAX_ENTRIES:
        raise DENY_LIST_TOO_LONG(most=MAX_ENTRIES)
    return (gone or 0) + (added or 0) + len(erased_and_removed)


_REMOVE = text(
    "WITH gone AS ("
    "   DELETE FROM denied_entries WHERE user_id = :owner_id AND entry = ANY(:gone) RETURNING 1)"
    " SELECT count(*) FROM gone"
)
_ADD = text(
    "WITH added AS ("
    "   INSERT INTO denied_entries (user_id, entry)"
    "   SELECT :owner_id, unnest(CAST(:added AS text[])) ON CONFLICT DO NOTHING RETURNING 1)"
    " SELECT count(*) FROM added"
)


def require_allowed(uow: UnitOfWork, owner_id: int, addresses: Collection[str]) -> None:
    """Raise ``member.denied`` if one of a person's addresses is on a deny list.

    ``addresses``: the address of the person's account, and the older address that the list may
    have.
    """
    if find_denied(uow, owner_id, addresses):
        raise MEMBER_DENIED()


def find_denied(uow: UnitOfWork, owner_id: int, addresses: Collection[str]) -> set[str]:
    """Return the normalised addresses that may not come onto the owner's lists."""
    entries = _of_installation(uow.settings.deny_list)
    of_owner = DeniedEntry.user_id == owner_id
    if uow.session.scalar(select(exists().where(of_owner))):
        candidates = {entry for address in addresses for entry in _entries_for(address)}
        values = {"owner_id": owner_id, "wanted": sorted(candidates)}
        entries |= {*uow.session.scalars(_FIND_ENTRIES, values)}
    erased = {*_erased_among(uow, owner_id, addresses).values()}
    if not entries:
        return erased
    return erased | {each for each in addresses if not entries.isdisjoint(_entries_for(each))}


_FIND_ENTRIES = text(
    "SELECT entry FROM denied_entries WHERE user_id = :owner_id AND entry = ANY(:wanted)"
)


def _erased_among(uow: UnitOfWork, owner_id: int, addresses: Collection[str]) -> dict[bytes, str]:
    """Find the addresses that are still denied although their person was erased.

    Returns a mapping from the stored HMAC of each such address to the address.
    """
    of_owner = ErasedDenial.user_id == owner_id
    if not uow.session.scalar(select(exists().where(of_owner))):
        return {}
    digests_of = uow.settings.keyring.signer(_PURPOSE).digests
    known = {digest: each for each in addresses for digest in digests_of(each.encode())}
    stored = uow.session.scalars(_FIND_ERASED, {"owner_id": owner_id, "digests": [*known]})
    return {bytes(digest): known[bytes(digest)] for digest in stored}


_FIND_ERASED = text(
    "SELECT address_hmac FROM erased_denials"
    " WHERE user_id = :owner_id AND address_hmac = ANY (CAST(:digests AS bytea[]))"
)


def keep_for_erasure(uow: UnitOfWork, address: str) -> None:
    """Replace an erased person's address by its HMAC in the deny lists of all owners."""
    digest = uow.settings.keyring.signer(_PURPOSE).digest(address.encode())
    uow.session.execute(_KEEP_FOR_ERASURE, {"address": address, "digest": digest})


_KEEP_FOR_ERASURE = text(
    "WITH gone AS (DELETE FROM denied_entries WHERE entry = :address RETURNING user_id)"
    " INSERT INTO erased_denials (user_id, address_hmac)"
    " SELECT user_id, :digest FROM gone ON CONFLICT DO NOTHING"
)


def _entries_for(address: str) -> Iterator[str]:
    """Yield every entry that would deny the address."""
    yield address
    domain = address.rpartition("@")[2]
    yield domain
    while domain := domain.partition(".")[2]:
        yield f"{_SUBDOMAINS}{domain}"


@lru_cache(maxsize=8)
def _of_installation(written: tuple[str, ...]) -> frozenset[str]:
    """Return the operator's entries, normalised."""
    addresses = [each for each in written if "@" in each]
    spelled = email_addresses.normalise_addresses(addresses)
    entries = {each for each in spelled if isinstance(each, str)}
    entries |= {each for domain in written if "@" not in domain and (each := _domain(domain))}
    if len(entries) < len({*written}):
        # Two spellings of one entry also get here.
        log.warning("deny_list.entries_passed_over", read=len(entries), written=len({*written}))
    return frozenset(entries)
