from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from devstack.harness.stack import Owner, Stack
from services.accounts import email_addresses
from services.subscriptions import deny_lists

LABELS = st.sampled_from(["a", "b", "net", "org", "bücher"])
DOMAINS = st.lists(LABELS, min_size=2, max_size=4).map(".".join)
ADDRESSES = st.tuples(st.sampled_from(["ada", "ben"]), DOMAINS).map("@".join)
ENTRIES = st.one_of(ADDRESSES, DOMAINS, DOMAINS.map("*.{}".format), LABELS.map("*.{}".format))


def is_denied(address: str, entries: set[str]) -> bool:
    domain = address.partition("@")[2]
    return any(
        entry in {address, domain} or (entry[:2] == "*." and domain.endswith(entry[1:]))
        for entry in entries
    )


@pytest.fixture(scope="module")
def owner_id(stack: Stack) -> int:
    return stack.create_owner().user_id


@pytest.mark.slow
@given(
    own=st.sets(ENTRIES, max_size=4),
    of_operator=st.sets(ENTRIES, max_size=2),
    addresses=st.sets(ADDRESSES, min_size=1, max_size=6),
)
@settings(max_examples=200)
def test_deny_list_denies_exactly_the_addresses_that_match_its_entries(
    stack: Stack, owner_id: int, own: set[str], of_operator: set[str], addresses: set[str]
) -> None:
    with_list = stack.settings().model_copy(update={"deny_list": tuple(of_operator)})
    with replace(stack.resources, settings=with_list).unit_of_work() as uow:
        deny_lists.replace_entries(uow, owner_id, own)
        found = deny_lists.find_denied(uow, owner_id, addresses)
    assert found == {each for each in addresses if is_denied(each, own | of_operator)}


def test_operator_deny_list_entries_are_normalised_like_addresses(
    stack: Stack, owner: Owner
) -> None:
    written = ("Ada@EXAMPLE.org", "XN--bcher-kva.example", "*.Example.NET", "no domain")
    with_list = stack.settings().model_copy(update={"deny_list": written})
    addresses = ["ada@example.org", "ben@example.org", "x@bücher.example", "x@a.example.net"]
    assert email_addresses.normalise_addresses(addresses) == addresses
    with replace(stack.resources, settings=with_list).unit_of_work() as uow:
        found = deny_lists.find_denied(uow, owner.user_id, addresses)
    assert found == {addresses[0], addresses[2], addresses[3]}


def test_denial_of_an_erased_person_holds_under_every_secret_key(
    stack: Stack, owner: Owner
) -> None:
    address, current = "ada@erased.example", stack.settings()
    keys = current.secret_keys.get_secret_value().split(",")
    assert len(keys) == 2
    swapped = current.model_copy(update={"secret_keys": SecretStr(",".join(keys[::-1]))})
    # Discard the cached keyring, which the copy took over from the original settings.
    swapped.__dict__.pop("keyring", None)
    with replace(stack.resources, settings=swapped).unit_of_work() as uow:
        deny_lists.change_entries(uow, owner.user_id, add=[address], remove=[])
        deny_lists.hash_entries(uow, address)
    with stack.resources.unit_of_work() as uow:
        assert deny_lists.find_denied(uow, owner.user_id, [address]) == {address}
        assert deny_lists.change_entries(uow, owner.user_id, add=[], remove=[address]) == 1
        assert deny_lists.find_denied(uow, owner.user_id, [address]) == set()
