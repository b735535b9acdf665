"""Reads and changes deny lists, which keep e-mail addresses and domains off all lists of an owner.

The operator's deny list applies to the lists of all owners. Code that adds a person to a list must
first call ``require_allowed`` or ``find_denied``. A deny list doesn't affect existing members.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from sqlalchemy import delete, exists, func, select, text

from core.errors import FieldProblem
from core.errors.mailing import DENY_LIST_ENTRY, DENY_LIST_TOO_LONG, MEMBER_DENIED
from core.ids import AccountId
from core.languages.shown_lines import strip_invisible
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
# Lock the owner's deny list, so that concurrent requests together can't exceed the maximum number
# of entries.
_LOCK_DENY_LIST = text("SELECT pg_advisory_xact_lock(hashtext('deny_lists'), hashint8(:owner_id))")
_REMOVE_ENTRIES = text(
    "WITH gone AS ("
    "   DELETE FROM denied_entries WHERE user_id = :owner_id AND entry = ANY(:gone) RETURNING 1)"
    " SELECT count(*) FROM gone"
)
_ADD_ENTRIES = text(
    "WITH added AS ("
    "   INSERT INTO denied_entries (user_id, entry)"
    "   SELECT :owner_id, unnest(CAST(:added AS text[])) ON CONFLICT DO NOTHING RETURNING 1)"
    " SELECT count(*) FROM added"
)
_FIND_ENTRIES = text(
    "SELECT entry FROM denied_entries WHERE user_id = :owner_id AND entry = ANY(:wanted)"
)
_FIND_ERASED = text(
    "SELECT address_hmac FROM erased_denials"
    " WHERE user_id = :owner_id AND address_hmac = ANY (CAST(:digests AS bytea[]))"
)
_HASH_ENTRIES = text(
    "WITH gone AS (DELETE FROM denied_entries WHERE entry = :address RETURNING user_id)"
    " INSERT INTO erased_denials (user_id, address_hmac)"
    " SELECT user_id, :digest FROM gone ON CONFLICT DO NOTHING"
)


@dataclass(frozen=True)
class DenyList:
    """A deny list in alphabetical order.

    ``erased`` is the number of entries whose addresses were replaced by HMACs because the people
    were erased.
    """

    addresses: Sequence[str] = ()
    domains: Sequence[str] = ()
    erased: int = 0


def normalise_entries(
    addresses: Sequence[str], domains: Sequence[str], *, verb: str = ""
) -> set[str]:
    """List the first hundred invalid entries in the error.

    ``verb`` is a prefix for field names, such as ``add_``.
    """
    problems: list[FieldProblem] = []

    def add_problem(kind: str, number: int, rule: str) -> None:
        field = f"body.{verb}{kind}[{number}]"
        problems.append(FieldProblem(field, DENY_LIST_ENTRY.code, rule))

    entries: set[str] = set()
    for number, address in enumerate(email_addresses.normalise_addresses(addresses)):
        if isinstance(address, InvalidAddress):
            add_problem("addresses", number, address.reason)
        else:
            entries.add(address)
    for number, written in enumerate(domains):
        domain = _normalise_domain(written)
        if domain is None:
            add_problem(
                "domains", number, "This is neither a domain nor a pattern such as *.example.com."
            )
        else:
            entries.add(domain)
    if problems:
        first_problem = problems[0]
        raise DENY_LIST_ENTRY(
            place=first_problem.field,
            rule=first_problem.message,
            problems=tuple(problems[:_MAX_PROBLEMS]),
        )
    return entries


def _normalise_domain(written: str) -> str | None:
    """Accept patterns such as ``*.example.com`` for all subdomains."""
    written = strip_invisible(written)
    if not written.startswith(_SUBDOMAINS):
        return email_addresses.normalise_domain(written)
    # Replace the star with a letter instead of removing it, because ``normalise_domain`` rejects a
    # domain without a dot, such as the ``com`` in ``*.com``.
    domain = email_addresses.normalise_domain(f"a{written[1:]}")
    return domain and f"*{domain[1:]}"


def read_deny_list(uow: UnitOfWork, account_id: AccountId) -> DenyList:
    entries = sorted(_list_entries(uow, account_id))
    addresses = [entry for entry in entries if "@" in entry]
    domains = [entry for entry in entries if "@" not in entry]
    erased_count = select(func.count()).where(ErasedDenial.user_id == account_id)
    return DenyList(addresses, domains, uow.session.scalar(erased_count) or 0)


def _list_entries(uow: UnitOfWork, account_id: AccountId) -> Sequence[str]:
    query = select(DeniedEntry.entry).where(DeniedEntry.user_id == account_id)
    return uow.session.scalars(query).all()


def replace_entries(uow: UnitOfWork, account_id: AccountId, entries: Collection[str]) -> int:
    """Return how many entries were added and removed.

    HMACs of erased people's addresses stay, because the owner can't see and include them.
    """
    uow.session.execute(_LOCK_DENY_LIST, {"owner_id": account_id})
    old_entries = set(_list_entries(uow, account_id))
    new_entries = {*entries}
    return change_entries(
        uow, account_id, add=new_entries - old_entries, remove=old_entries - new_entries
    )


def change_entries(
    uow: UnitOfWork, account_id: AccountId, *, add: Collection[str], remove: Collection[str]
) -> int:
    """Return the number of added and removed entries. Addresses of erased people can be removed."""
    uow.session.execute(_LOCK_DENY_LIST, {"owner_id": account_id})
    add = {*add} - {*remove}
    if len(add) > MAX_ENTRIES:
        raise DENY_LIST_TOO_LONG(most=MAX_ENTRIES)
    values = {"owner_id": account_id, "gone": sorted({*remove}), "added": sorted(add)}
    removed_count = uow.session.scalar(_REMOVE_ENTRIES, values) if remove else 0
    added_count = uow.session.scalar(_ADD_ENTRIES, values) if add else 0
    erased_addresses = _find_erased_addresses(uow, account_id, {*add, *remove})
    uow.session.execute(
        delete(ErasedDenial).where(
            ErasedDenial.user_id == account_id, ErasedDenial.address_hmac.in_(erased_addresses)
        )
    )
    removed_erased_addresses = {*erased_addresses.values()} & {*remove}
    entry_count = select(func.count()).where(DeniedEntry.user_id == account_id)
    if added_count and (uow.session.scalar(entry_count) or 0) > MAX_ENTRIES:
        raise DENY_LIST_TOO_LONG(most=MAX_ENTRIES)
    return (removed_count or 0) + (added_count or 0) + len(removed_erased_addresses)


def require_allowed(uow: UnitOfWork, account_id: AccountId, addresses: Collection[str]) -> None:
    """Check the addresses in the account and the record."""
    if find_denied(uow, account_id, addresses):
        raise MEMBER_DENIED()


def find_denied(uow: UnitOfWork, account_id: AccountId, addresses: Collection[str]) -> set[str]:
    entries = _normalise_operator_entries(uow.settings.deny_list)
    entries_by_domain = {
        domain: _list_domain_entries(domain) for domain in {*map(_get_domain, addresses)}
    }
    if uow.session.scalar(select(exists().where(DeniedEntry.user_id == account_id))):
        candidates = {*addresses, *chain.from_iterable(entries_by_domain.values())}
        values = {"owner_id": account_id, "wanted": sorted(candidates)}
        entries |= {*uow.session.scalars(_FIND_ENTRIES, values)}
    erased_addresses = {*_find_erased_addresses(uow, account_id, addresses).values()}
    denied_domains = {
        domain
        for domain, domain_entries in entries_by_domain.items()
        if not entries.isdisjoint(domain_entries)
    }
    denied_addresses = {
        address
        for address in addresses
        if address in entries or _get_domain(address) in denied_domains
    }
    return erased_addresses | denied_addresses


def _find_erased_addresses(
    uow: UnitOfWork, account_id: AccountId, addresses: Collection[str]
) -> dict[bytes, str]:
    """Map the stored HMACs of erased people to ``addresses``."""
    if not uow.session.scalar(select(exists().where(ErasedDenial.user_id == account_id))):
        return {}
    compute_digests = uow.settings.keyring.signer(_PURPOSE).digests
    address_by_digest = {
        digest: address for address in addresses for digest in compute_digests(address.encode())
    }
    values = {"owner_id": account_id, "digests": [*address_by_digest]}
    stored_digests = uow.session.scalars(_FIND_ERASED, values)
    return {bytes(digest): address_by_digest[bytes(digest)] for digest in stored_digests}


def hash_entries(uow: UnitOfWork, address: str) -> None:
    digest = uow.settings.keyring.signer(_PURPOSE).digest(address.encode())
    uow.session.execute(_HASH_ENTRIES, {"address": address, "digest": digest})


def _get_domain(address: str) -> str:
    return address.rpartition("@")[2]


def _list_domain_entries(domain: str) -> list[str]:
    entries = [domain]
    while domain := domain.partition(".")[2]:
        entries.append(f"{_SUBDOMAINS}{domain}")
    return entries


@lru_cache(maxsize=8)
def _normalise_operator_entries(written: tuple[str, ...]) -> frozenset[str]:
    """Skip invalid entries."""
    normalised_addresses = email_addresses.normalise_addresses(
        [each for each in written if "@" in each]
    )
    entries = {each for each in normalised_addresses if isinstance(each, str)}
    domains = (_normalise_domain(each) for each in written if "@" not in each)
    entries |= {each for each in domains if each}
    if len(entries) < len({*written}):
        # The operator's setting ``deny_list`` contains invalid or duplicate entries.
        log.warning("deny_list.entries_passed_over", read=len(entries), written=len({*written}))
    return frozenset(entries)
