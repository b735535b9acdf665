from concurrent.futures import ThreadPoolExecutor

import pytest

from core.errors import DomainError
from core.ids import random_hash_id
from models import MailingList, User
from services.accounts import accounts
from services.subscriptions import lists, sign_up
from services.subscriptions.consent.entries import normalise_ip
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.support.imports.importing import ImportRunner

WORDING_COUNT = 6


@pytest.mark.parametrize(
    ("ip_text", "stored_ip"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:DB8::1", "2001:db8::1"),
        # In Pressroom's exports, a shortened IP address is written as a network, such as
        # 203.0.113.0/24.
        ("203.0.113.0/24", "203.0.113.0/24"),
        ("2001:db8:1::/48", "2001:db8:1::/48"),
        ("203.0.113.9/31", "203.0.113.0/24"),
        ("", None),
        ("unix:", None),
        ("203.0.113.9, 10.0.0.1", None),
        ("fe80::1%eth0", None),
        ("fe80::1%" + "x" * 500, None),
        ("9" * 10_000, None),
    ],
)
def test_only_a_valid_ip_address_is_kept_as_consent_evidence(
    ip_text: str, stored_ip: str | None
) -> None:
    assert normalise_ip(ip_text) == stored_ip


def test_concurrently_set_consent_wordings_each_get_their_own_version(
    importing: ImportRunner, list_id: int
) -> None:
    def set_wording(number: int) -> None:
        wording = {"consent_wording": f"Wording {number // 2}"}
        while True:
            try:
                with importing.resources.unit_of_work() as uow:
                    lists.change_list(uow, lists.get_list(uow, list_id), wording, ())
            except DomainError as error:
                # Retry after the error ``list.busy``, because its message asks for a retry.
                if error.code != "list.busy":
                    raise
            else:
                return

    with ThreadPoolExecutor(WORDING_COUNT) as pool:
        list(pool.map(set_wording, range(2 * WORDING_COUNT)))
    query = "SELECT array_agg(version ORDER BY version), count(DISTINCT wording)"
    [(versions, distinct_wording_count)] = importing.stack.query(
        f"{query} FROM consent_wordings WHERE list_id = %s", list_id
    )
    assert (versions, distinct_wording_count) == (list(range(1, WORDING_COUNT + 1)), WORDING_COUNT)


def test_consent_entry_records_the_wording_in_force_when_it_is_written(
    importing: ImportRunner, list_id: int
) -> None:
    """After a sign-up has read the list, another transaction changes the list's consent wording."""
    with importing.resources.unit_of_work() as uow:
        mailing_list = uow.session.get_one(MailingList, list_id)
        person = accounts.create_user(uow, email=f"{random_hash_id()}@example.com", name="Ada")
        user_id = person.id
        uow.session.flush()
        with importing.resources.unit_of_work() as other_uow:
            wording = {"consent_wording": "New"}
            lists.change_list(other_uow, lists.get_list(other_uow, list_id), wording, ())
        person = uow.session.get_one(User, user_id)
        actor = Actor(ActorKind.USER, Via.LOGIN, ip="unix:")
        sign_up.subscribe_person(uow, mailing_list, person, actor)
    query = "SELECT wording_version, ip FROM consent_entries WHERE user_id = %s"
    assert importing.stack.query(query, user_id) == [(1, None)]
