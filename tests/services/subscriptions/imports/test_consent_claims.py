"""Claims by an owner or an import file that a member gave consent."""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

import psycopg2
import pytest
from psycopg2.errors import RestrictViolation

from core import clock
from core.ids import random_hash_id
from devstack.harness.stack import Owner
from models import ConsentHow, MemberImport
from services.accounts import accounts
from services.paging import UNPAGED
from services.subscriptions import lists, sign_up
from services.subscriptions.consent import evidence
from services.subscriptions.consent.claims import ClaimedConsent, record_claims
from services.subscriptions.consent.evidence import (
    CONSENT_COLUMNS,
    ConsentEvidence,
    build_export_values,
    read_evidence_by_member,
)
from services.subscriptions.imports import undo
from services.subscriptions.members import changes, transfers, unsubscribe
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.support.imports.importing import ImportRunner, csv_of, new_addresses
from tests.support.people.erasure import erase

OWNER = Actor(ActorKind.OWNER, Via.LOGIN)
READER = Actor(ActorKind.USER, Via.LOGIN, ip="198.51.100.7", page_url="https://example.com/tea")
CLAIM_TIME = datetime(2019, 3, 4, 5, 6, 7, tzinfo=UTC)
ONE_DAY = timedelta(days=1)


@pytest.fixture
def claimants() -> list[str]:
    return new_addresses(5)


def import_addresses(
    importing: ImportRunner, owner: Owner, list_id: int, people: Sequence[str]
) -> MemberImport:
    return importing.import_members(owner, list_id, csv_of([[each] for each in people], ("email",)))


def record_consent_claims(
    importing: ImportRunner, import_id: int, *claims: ClaimedConsent, claimed_by: str = "Mailchimp"
) -> int:
    addresses = {each.email for each in claims}
    with importing.resources.unit_of_work() as uow:
        people = {each: accounts.find_or_create_person(uow, each).id for each in addresses}
        return record_claims(uow, import_id, claims, people=people, claimed_by=claimed_by)


def list_consent(importing: ImportRunner, list_id: int, address: str) -> list[ConsentEvidence]:
    with importing.person(list_id, address) as (uow, _, person):
        member = changes.find_record(uow, list_id, person.id)
        assert member is not None
        return evidence.list_evidence(uow, member, UNPAGED).rows


def test_consent_claim_is_shown_with_its_source_and_cleaned_details(
    importing: ImportRunner, importer: Owner, list_id: int, claimants: list[str]
) -> None:
    task = import_addresses(importing, importer, list_id, claimants[:2])
    yesterday = clock.now() - ONE_DAY
    signed_up = ClaimedConsent(
        claimants[0],
        ConsentHow.FORM,
        yesterday,
        ip=" 203.0.113.9 ",
        url="https://old.example.com/join?id=secret",
        wording=" Send me\0 tea. ",
    )
    confirmed = ClaimedConsent(
        claimants[0], ConsentHow.CONFIRMATION, yesterday + timedelta(hours=1)
    )
    assert record_consent_claims(importing, task.id, signed_up, confirmed) == 2
    by_import, second, first = list_consent(importing, list_id, claimants[0])
    assert (by_import.how, by_import.claimed_by, by_import.import_id) == (
        "import",
        "owner",
        task.id,
    )
    assert first._replace(place=0) == ConsentEvidence(
        occurred_at=yesterday,
        how="form",
        ip="203.0.113.9",
        url="https://old.example.com/join",
        browser=None,
        wording="Send me tea.",
        wording_version=None,
        claimed_by="Mailchimp",
        confirmed=False,
        list_id=list_id,
        import_id=task.id,
        origin=None,
        engagement=False,
        place=0,
    )
    assert (second.how, second.ip, second.claimed_by) == ("confirmation", None, "Mailchimp")
    # The second imported member has no consent claim, but only the consent entry that the import
    # itself adds.
    assert [each.how for each in list_consent(importing, list_id, claimants[1])] == ["import"]


def test_import_records_one_consent_claim_of_each_kind_per_member(
    importing: ImportRunner, importer: Owner, list_id: int, claimants: list[str]
) -> None:
    task = import_addresses(importing, importer, list_id, claimants[:1])
    duplicate_claims = [ClaimedConsent(claimants[0], ConsentHow.FORM, CLAIM_TIME)] * 2
    assert record_consent_claims(importing, task.id, *duplicate_claims) == 1
    assert record_consent_claims(importing, task.id, *duplicate_claims) == 0
    second_import = import_addresses(importing, importer, list_id, claimants[:1])
    assert (
        record_consent_claims(importing, second_import.id, *duplicate_claims, claimed_by="Ghost")
        == 1
    )
    sources = [each.claimed_by for each in list_consent(importing, list_id, claimants[0])]
    assert sources == ["owner", "Ghost", "Mailchimp"]


def test_consent_claims_are_recorded_only_for_active_members_of_the_imported_list(
    importing: ImportRunner, importer: Owner, list_id: int, claimants: list[str]
) -> None:
    unsubscribed_address, address_on_other_list, stranger = claimants[:3]
    task = import_addresses(importing, importer, list_id, [unsubscribed_address])
    import_addresses(importing, importer, importing.new_list(importer), [address_on_other_list])
    with importing.person(list_id, unsubscribed_address) as (uow, mailing_list, person):
        unsubscribe.unsubscribe_member(uow, mailing_list, person, READER)
    claims = [
        ClaimedConsent(each, ConsentHow.FORM, CLAIM_TIME)
        for each in (unsubscribed_address, address_on_other_list, stranger)
    ]
    assert record_consent_claims(importing, task.id, *claims) == 0
    assert record_consent_claims(importing, task.id) == 0
    assert record_consent_claims(importing, task.id + 10**12, *claims) == 0


def test_overlong_texts_and_invalid_times_in_consent_claims_are_cut_or_replaced(
    importing: ImportRunner, importer: Owner, list_id: int, claimants: list[str]
) -> None:
    task = import_addresses(importing, importer, list_id, claimants)
    future = datetime(9998, 1, 1, tzinfo=UTC)
    claims = [
        ClaimedConsent(claimants[0], ConsentHow.FORM, future, wording="w" * 100_000),
        ClaimedConsent(claimants[1], ConsentHow.FORM, None, url="javascript:alert(1)"),
        ClaimedConsent(claimants[2], ConsentHow.FORM, datetime(1, 1, 1, tzinfo=UTC), ip="unknown"),
        ClaimedConsent(
            claimants[3],
            ConsentHow.FORM,
            CLAIM_TIME,
            ip="192.0.2.7",
            url="https://x.example/" + "a" * 9_000,
        ),
    ]
    assert record_consent_claims(importing, task.id, *claims) == 4
    stored_claims = [
        next(
            each for each in list_consent(importing, list_id, address) if each.claimed_by != "owner"
        )
        for address in claimants[:4]
    ]
    assert stored_claims[0].wording == "w" * 2_000
    for each in stored_claims[:3]:
        assert abs(each.occurred_at - clock.now()) < timedelta(minutes=5)
    assert stored_claims[3].occurred_at == CLAIM_TIME
    assert [each.url for each in stored_claims] == [None] * 4
    assert stored_claims[2].ip is None
    # The last consent claim is from 2019. Because the retention period of its IP address is over,
    # Pressroom shortens the IP address when it stores the claim.
    assert stored_claims[3].ip == "192.0.2.0/24"


def test_import_undo_removes_only_the_consent_claims_of_that_import(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    claimants: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(undo, "MEMBERS_PER_BATCH", 2)
    edited_address = claimants[0]
    first = import_addresses(importing, importer, list_id, claimants[:3])
    second = import_addresses(importing, importer, list_id, claimants)
    form_claims = [ClaimedConsent(each, ConsentHow.FORM, CLAIM_TIME) for each in claimants]
    assert record_consent_claims(importing, first.id, *form_claims[:3]) == 3
    all_claims = [
        *form_claims,
        *(ClaimedConsent(each, ConsentHow.CONFIRMATION, CLAIM_TIME) for each in claimants),
    ]
    assert record_consent_claims(importing, second.id, *all_claims) == 10
    with importing.person(list_id, edited_address) as (uow, _, person):
        member = changes.find_record(uow, list_id, person.id)
        assert member is not None
        changes.change_record(uow, member, "edited", OWNER, name="Edited")
    assert importing.undo(importer, second.id)["undone"] == 2
    assert (importing.count_claims(first.id), importing.count_claims(second.id)) == (3, 0)
    assert [each.import_id for each in list_consent(importing, list_id, edited_address)] == [
        first.id
    ] * 2
    assert importing.undo(importer, first.id) == {
        "import_id": first.id,
        "undone": 2,
        "kept": 1,
    }
    assert importing.count_claims(first.id) == 0
    assert [each.how for each in list_consent(importing, list_id, edited_address)] == ["import"]


def test_consent_claim_follows_a_member_transfer_and_is_removed_by_import_undo(
    importing: ImportRunner, importer: Owner, list_id: int, claimants: list[str]
) -> None:
    task = import_addresses(importing, importer, list_id, claimants[:1])
    other_list_id = importing.new_list(importer)
    record_consent_claims(
        importing, task.id, ClaimedConsent(claimants[0], ConsentHow.FORM, CLAIM_TIME)
    )
    with importing.person(list_id, claimants[0]) as (uow, mailing_list, person):
        target = lists.get_list(uow, other_list_id)
        transfers.transfer_member(uow, mailing_list, target, person.id, actor=OWNER)
    transferred_consent = list_consent(importing, other_list_id, claimants[0])
    assert [(each.how, each.claimed_by, each.list_id) for each in transferred_consent] == [
        ("transfer", "owner", other_list_id),
        ("import", "owner", list_id),
        ("form", "Mailchimp", list_id),
    ]
    importing.undo(importer, task.id)
    assert [each.how for each in list_consent(importing, other_list_id, claimants[0])] == [
        "transfer",
        "import",
    ]


def test_erasure_of_a_person_deletes_their_consent_claims(
    importing: ImportRunner, importer: Owner, list_id: int, claimants: list[str]
) -> None:
    task = import_addresses(importing, importer, list_id, claimants)
    record_consent_claims(
        importing,
        task.id,
        *(ClaimedConsent(each, ConsentHow.FORM, CLAIM_TIME) for each in claimants),
    )
    erase(importing.resources, claimants[0])
    assert importing.count_claims(task.id) == len(claimants) - 1


def test_erasure_of_an_owner_blanks_consent_wordings_of_their_lists(
    importing: ImportRunner, importer: Owner
) -> None:
    with importing.resources.unit_of_work() as uow:
        archived_list = lists.create_list(
            uow,
            account_id=importer.account_id,
            title="Tea",
            slug=random_hash_id(),
            fields={"consent_wording": "Ada sends me tea."},
        )
        lists.archive_list(uow, archived_list)
    erase(importing.resources, importer.email)
    query = "SELECT wording FROM consent_wordings WHERE list_id = %s"
    assert importing.stack.query(query, archived_list.id) == [("Erased",)]


def test_application_role_cannot_delete_or_shorten_consent_of_existing_people_and_imports(
    importing: ImportRunner, importer: Owner, list_id: int, claimants: list[str]
) -> None:
    task = import_addresses(importing, importer, list_id, claimants[:1])
    record_consent_claims(
        importing,
        task.id,
        ClaimedConsent(claimants[0], ConsentHow.FORM, CLAIM_TIME, ip="192.0.2.1"),
    )
    with importing.person(importing.new_list(importer), claimants[0]) as (
        uow,
        mailing_list,
        person,
    ):
        sign_up.subscribe_person(uow, mailing_list, person, READER)
        user_id = person.id
    before = importing.stack.query("SELECT * FROM consent_entries WHERE user_id = %s", user_id)
    assert len(before) == 1
    url = importing.stack.environment["PRESSROOM_DATABASE_URL"]
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        with pytest.raises(RestrictViolation):
            cursor.execute("SELECT take_back_claims(%s, 10)", (task.id,))
        cursor.execute("SELECT erase_consent(ARRAY[%s, %s], 10)", (user_id, importer.user_id))
        assert cursor.fetchone() == (0,)
        # The function shortens only IP addresses that are more than a day old, even if the caller
        # passes a negative number of days.
        cursor.execute("SELECT shorten_consent_ips(-100, 10)")
    after = importing.stack.query("SELECT * FROM consent_entries WHERE user_id = %s", user_id)
    assert after == before
    assert importing.count_claims(task.id) == 1


def test_export_reads_consent_evidence_of_many_members_together(
    importing: ImportRunner, importer: Owner, list_id: int, claimants: list[str]
) -> None:
    task = import_addresses(importing, importer, list_id, claimants[:2])
    wording = "=SUM(A1)"
    claimed = ClaimedConsent(
        claimants[0], ConsentHow.FORM, CLAIM_TIME, ip="192.0.2.7", wording=wording
    )
    record_consent_claims(importing, task.id, claimed)
    with importing.person(list_id, claimants[1]) as (uow, mailing_list, person):
        unsubscribe.unsubscribe_member(uow, mailing_list, person, READER)
        sign_up.subscribe_person(uow, mailing_list, person, READER)
    rows = importing.stack.query(
        "SELECT email, id FROM subscriptions WHERE list_id = %s ORDER BY email", list_id
    )
    ids = {str(email): int(str(row_id)) for email, row_id in rows}
    with importing.resources.replica_reads.view(timedelta(minutes=1), failures=0) as replica_view:
        evidence_by_member = read_evidence_by_member(replica_view, [*ids.values(), 2**52])
    assert set(evidence_by_member) == set(ids.values())
    assert {
        ids[each]: list_consent(importing, list_id, each) for each in claimants[:2]
    } == evidence_by_member
    by_claim, (_, *own_values) = (
        build_export_values(evidence_by_member[ids[each]]) for each in claimants[:2]
    )
    # The consent entry of the member's own sign-up takes precedence over the import's entry.
    assert own_values == ["login", "198.51.100.7", "https://example.com/tea", *[None] * 4]
    # A consent claim in the imported file takes precedence over the consent entry that the import
    # adds itself.
    from_file = ("form", "192.0.2.0/24", None, wording, None, None, "Mailchimp")
    assert by_claim == (clock.format_timestamp(CLAIM_TIME), *from_file)
    assert build_export_values(()) == (None,) * len(CONSENT_COLUMNS)
