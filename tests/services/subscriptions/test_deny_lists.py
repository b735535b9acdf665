from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from core.ids import AccountId
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
    owner_entries=st.sets(ENTRIES, max_size=4),
    operator_entries=st.sets(ENTRIES, max_size=2),
    addresses=st.sets(ADDRESSES, min_size=1, max_size=6),
)
@settings(max_examples=200)
def test_deny_list_denies_exactly_the_addresses_that_match_its_entries(
    stack: Stack,
    owner_id: int,
    owner_entries: set[str],
    operator_entries: set[str],
    addresses: set[str],
) -> None:
    operator_settings = stack.settings().model_copy(update={"deny_list": tuple(operator_entries)})
    with replace(stack.resources, settings=operator_settings).unit_of_work() as uow:
        deny_lists.replace_entries(uow, AccountId(owner_id), owner_entries)
        denied = deny_lists.find_denied(uow, AccountId(owner_id), addresses)
    assert denied == {
        each for each in addresses if is_denied(each, owner_entries | operator_entries)
    }


def test_operator_deny_list_entries_are_normalised_like_addresses(
    stack: Stack, owner: Owner
) -> None:
    entries = ("Ada@EXAMPLE.org", "XN--bcher-kva.example", "*.Example.NET", "no domain")
    operator_settings = stack.settings().model_copy(update={"deny_list": entries})
    addresses = ["ada@example.org", "ben@example.org", "x@bücher.example", "x@a.example.net"]
    assert email_addresses.normalise_addresses(addresses) == addresses
    with replace(stack.resources, settings=operator_settings).unit_of_work() as uow:
        denied = deny_lists.find_denied(uow, owner.account_id, addresses)
    assert denied == {addresses[0], addresses[2], addresses[3]}


def test_denial_of_an_erased_person_holds_under_every_secret_key(
    stack: Stack, owner: Owner
) -> None:
    address = "ada@erased.example"
    current_settings = stack.settings()
    keys = current_settings.secret_keys.get_secret_value().split(",")
    assert len(keys) == 2
    swapped_settings = current_settings.model_copy(
        update={"secret_keys": SecretStr(",".join(keys[::-1]))}
    )
    # Discard the cached keyring, which the copy took over from the original settings.
    swapped_settings.__dict__.pop("keyring", None)
    with replace(stack.resources, settings=swapped_settings).unit_of_work() as uow:
        deny_lists.change_entries(uow, owner.account_id, add=[address], remove=[])
        deny_lists.hash_entries(uow, address)
    with stack.resources.unit_of_work() as uow:
        assert deny_lists.find_denied(uow, owner.account_id, [address]) == {address}
        assert deny_lists.change_entries(uow, owner.account_id, add=[], remove=[address]) == 1
        assert deny_lists.find_denied(uow, owner.account_id, [address]) == set()
