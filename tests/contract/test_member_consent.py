"""Tests of the consent entries, which record how each member agreed to join a list."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from services.subscriptions.consent.wordings import MAX_WORDINGS
from services.subscriptions.sign_up_origins import UTM_NAMES
from tests.support.commands.running import run_json_command
from tests.support.http.replies import TIMESTAMP, data, problem
from tests.support.imports.bulk import add, build_address_file, import_members_file
from tests.support.lists.people_on_lists import Subscriber
from tests.support.lists.subscribers import (
    Reader,
    new_address,
    new_list,
    require_member,
    trace_for,
)
from tests.support.people.erasure import erase

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
REFERRING_URL = "https://www.example.com/tea/join"
BROWSER_HEADERS = {"Referer": f"{REFERRING_URL}?campaign=secret-word#form", "User-Agent": FIREFOX}
CONSENT_SOURCE = {"ip": "127.0.0.1", "url": REFERRING_URL, "browser": "Firefox on Linux"}
UNKNOWN_SOURCE: dict[str, object] = {
    **dict.fromkeys(("ip", "url", "browser", "wording", "wording_version", "others_of_network")),
    "origin": None,
    "confirmed": False,
    "engagement": False,
}
WORDING = "I want <Tea> by e-mail.\nI can leave at any time."


def read_consent(
    client: httpx2.Client, list_id: int, user_id: int, **query: Any
) -> list[dict[str, Any]]:
    reply = client.get(f"/lists/{list_id}/members/{user_id}/consent", params=query)
    return list(data(reply)["items"])


def subscribe(client: httpx2.Client, list_id: int, email: str, **headers: str) -> None:
    body = {"email": email}
    all_headers = {**BROWSER_HEADERS, **headers}
    assert data(client.post(f"/subscriptions/{list_id}", json=body, headers=all_headers)) == 1


def find_member_id(client: httpx2.Client, list_id: int, email: str) -> int:
    return int(require_member(client, list_id, email)["user_id"])


def select_fields(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: entry[name] for name in names}


def test_sign_up_form_records_consent_with_page_and_wording(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_list(client, consent_wording=f"  {WORDING} ")["id"]
    email = new_address()
    subscribe(stranger, list_id, email)
    [entry] = read_consent(client, list_id, find_member_id(client, list_id, email))
    assert TIMESTAMP.fullmatch(entry.pop("at"))
    assert entry == {
        "engagement": False,
        **CONSENT_SOURCE,
        "how": "form",
        "wording": WORDING,
        "wording_version": 1,
        "claimed_by": None,
        "confirmed": False,
        "others_of_network": 0,
        "list_id": list_id,
        "import_id": None,
        "origin": {
            **dict.fromkeys(UTM_NAMES),
            "referrer": "www.example.com",
            "landing": "/tea/join",
        },
    }
    # A repeated sign-up of an active member records no further consent.
    subscribe(stranger, list_id, email)
    assert len(read_consent(client, list_id, find_member_id(client, list_id, email))) == 1


def test_sign_up_request_and_its_confirmation_record_one_consent_each(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, confirm_required=True, consent_wording=WORDING)
    email = new_address()
    list_id = mailing_list["id"]
    for _ in range(2):
        subscribe(stranger, list_id, email)
    user_id = find_member_id(client, list_id, email)
    pending = Subscriber(stack, list_id, user_id, email)
    [request_entry] = read_consent(client, list_id, user_id)
    assert select_fields(request_entry, "how", "confirmed") == {"how": "form", "confirmed": False}
    token = pending.mailed_token()
    confirmation_page = stranger.get("/confirm", params={"token": token})
    assert "I want &lt;Tea&gt; by e-mail." in confirmation_page.text
    for _ in range(2):
        reply = stranger.post("/confirm", params={"token": token}, headers=BROWSER_HEADERS)
        assert reply.status_code == 303
    entries = read_consent(client, list_id, user_id)
    assert [each["how"] for each in entries] == ["confirmation", "form"]
    assert [each["confirmed"] for each in entries] == [True, True]
    assert select_fields(entries[0], *CONSENT_SOURCE, "wording") == {
        **CONSENT_SOURCE,
        "wording": WORDING,
    }
    assert token not in str(entries)


def test_logged_in_join_records_consent_each_time_it_activates_the_person(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    join_path = f"/subscriptions/{list_id}/no-challenge"
    assert data(reader.client.post(join_path, headers=BROWSER_HEADERS)) == 1
    assert data(reader.client.post(join_path, headers=BROWSER_HEADERS)) == 0
    [entry] = read_consent(client, list_id, reader.user_id)
    assert select_fields(entry, "how", "claimed_by", "confirmed", *CONSENT_SOURCE) == {
        **CONSENT_SOURCE,
        "how": "login",
        "confirmed": True,
        "claimed_by": None,
    }
    reader.leaves(list_id)
    reader.wants_mail(list_id, enabled=False)
    assert len(read_consent(client, list_id, reader.user_id)) == 1
    reader.joins(list_id)
    assert [each["how"] for each in read_consent(client, list_id, reader.user_id)] == ["login"] * 2


def test_undone_unsubscription_records_consent(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    query = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    for action in ("leave", "undo", "undo", "stop_mail", "resume_mail"):
        reply = stranger.post("/unsubscribe", params=query, data={"action": action})
        assert reply.status_code == 303
    assert [each["how"] for each in read_consent(client, list_id, reader.user_id)] == [
        "link",
        "login",
    ]


def test_consent_counts_other_unconfirmed_sign_ups_from_the_same_network(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_ids = [new_list(client)["id"] for _ in range(2)]
    emails = [new_address() for _ in range(3)]
    for email in emails:
        subscribe(stranger, list_ids[0], email)
    subscribe(stranger, list_ids[1], emails[0])
    # Add a sign-up from another network, and a sign-up from this machine's network. The IP address
    # of the second sign-up is shortened, as in consent entries that are older than 90 days.
    for ip, email in (("192.0.2.7", new_address()), ("127.0.0.0/24", new_address())):
        subscribe(stranger, list_ids[0], email)
        stack.query(
            "UPDATE consent_entries SET ip = %s WHERE user_id = %s",
            *(ip, find_member_id(client, list_ids[0], email)),
        )
    add(client, list_ids[0], new_address())
    [entry] = read_consent(client, list_ids[0], find_member_id(client, list_ids[0], emails[0]))
    assert select_fields(entry, "confirmed", "others_of_network") == {
        "confirmed": False,
        "others_of_network": 3,
    }
    [entry] = read_consent(client, list_ids[1], find_member_id(client, list_ids[1], emails[0]))
    assert entry["others_of_network"] == 0
    assert run_json_command(stack, "lists", "show", str(list_ids[0]))["most_of_network"] == 4


def test_imported_members_share_one_consent_record_that_is_the_owners_claim(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    emails = [new_address() for _ in range(3)]
    import_id = import_members_file(client, list_id, build_address_file(*emails))["import_id"]
    count_entries = "SELECT count(*) FROM consent_entries WHERE list_id = %s"
    assert stack.query(count_entries, list_id) == [(0,)]
    for email in emails:
        [entry] = read_consent(client, list_id, find_member_id(client, list_id, email))
        assert TIMESTAMP.fullmatch(entry.pop("at"))
        assert entry == {
            **UNKNOWN_SOURCE,
            "how": "import",
            "claimed_by": "owner",
            "list_id": list_id,
            "import_id": import_id,
        }
    added_email = new_address()
    assert data(add(client, list_id, added_email)) == 1
    [entry] = read_consent(client, list_id, find_member_id(client, list_id, added_email))
    assert select_fields(entry, "how", "claimed_by") == {"how": "import", "claimed_by": "owner"}


def test_member_added_by_the_owner_gets_consent_that_names_the_owner_as_claimant(
    client: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    path = f"/lists/{list_id}/members/{email}"
    for name in ("Ada", "Ada Reader"):
        member = data(client.put(path, json={"name": name}, headers=BROWSER_HEADERS))
    # The IP address and the browser of the owner aren't evidence of the member's consent.
    [entry] = read_consent(client, list_id, member["user_id"])
    assert TIMESTAMP.fullmatch(entry.pop("at"))
    assert entry == {
        **UNKNOWN_SOURCE,
        "how": "owner",
        "claimed_by": "owner",
        "list_id": list_id,
        "import_id": None,
    }


def transfer(client: httpx2.Client, source_id: int, user_id: int, target_id: int) -> None:
    path = f"/subscriptions/{source_id}/members/{user_id}/transfer"
    assert data(client.post(path, params={"dst_list_id": target_id}, headers=BROWSER_HEADERS)) == 1


def test_transfer_copies_the_consent_of_the_source_list(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    source_id = new_list(client, consent_wording="Of the source")["id"]
    email = new_address()
    target_id = new_list(client, consent_wording="Of the target")["id"]
    subscribe(stranger, source_id, email)
    user_id = find_member_id(client, source_id, email)
    source_entries = read_consent(client, source_id, user_id)
    transfer(client, source_id, user_id, target_id)
    transfer_entry, copied_entry = read_consent(client, target_id, user_id)
    assert copied_entry == source_entries[0]
    assert select_fields(copied_entry, "how", "wording", "list_id") == {
        "how": "form",
        "wording": "Of the source",
        "list_id": source_id,
    }
    # The consent entry for the transfer contains no IP address and no browser, because the owner
    # made the transfer.
    assert transfer_entry | {"at": None} == {
        **UNKNOWN_SOURCE,
        "at": None,
        "how": "transfer",
        "claimed_by": "owner",
        "list_id": target_id,
        "import_id": None,
    }
    assert read_consent(client, source_id, user_id) == source_entries


def test_consent_is_not_duplicated_by_repeated_transfers(
    client: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    other_list_id = new_list(client)["id"]
    import_id = import_members_file(client, list_id, build_address_file(email))["import_id"]
    user_id = find_member_id(client, list_id, email)
    for _ in range(2):
        transfer(client, list_id, user_id, other_list_id)
        transfer(client, other_list_id, user_id, list_id)
    entries = read_consent(client, list_id, user_id)
    assert sorted((each["how"], each["list_id"]) for each in entries) == sorted(
        [("import", list_id), *[("transfer", list_id)] * 2, *[("transfer", other_list_id)] * 2]
    )
    import_entries = [
        each for each in read_consent(client, other_list_id, user_id) if each["how"] == "import"
    ]
    assert [select_fields(each, "import_id", "list_id") for each in import_entries] == [
        {"import_id": import_id, "list_id": list_id}
    ]


def test_transfer_to_a_list_with_the_member_merges_consent_of_both_lists(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    target_id = new_list(client)["id"]
    reader.joins(list_id).joins(target_id)
    transfer(client, list_id, reader.user_id, target_id)
    entries = read_consent(client, target_id, reader.user_id)
    # The transfer to the target list added no consent entry, because the person was already a
    # member of that list.
    assert [select_fields(each, "how", "list_id") for each in entries] == [
        {"how": "login", "list_id": target_id},
        {"how": "login", "list_id": list_id},
    ]


UNSAFE_REFERRERS = [
    "",
    "about:blank",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "https://user:secret@www.example.com/tea",
    "https://www.example.com\\@evil.example/",
    "https://www.example.com/%5c",
    "//www.example.com/tea",
    "https://www.example.com/" + "a" * 4_000,
    "https://[::1/",
    "'; DROP TABLE consent_entries; --",
]


@pytest.mark.parametrize("referrer", UNSAFE_REFERRERS)
def test_consent_omits_a_referrer_that_is_no_plain_web_page(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int, referrer: str
) -> None:
    email = new_address()
    subscribe(stranger, list_id, email, Referer=referrer)
    [entry] = read_consent(client, list_id, find_member_id(client, list_id, email))
    assert entry["url"] is None


@pytest.mark.parametrize(
    ("user_agent", "browser"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("curl/8.0", None),
        ("", None),
        ("Firefox/" + "9" * 8_000 + "<script>", "Firefox"),
        ("=cmd|' /C calc'!A0", None),
    ],
)
def test_consent_stores_only_a_known_browser_name_of_the_user_agent(
    client: httpx2.Client,
    stranger: httpx2.Client,
    list_id: int,
    user_agent: str,
    browser: str | None,
) -> None:
    email = new_address()
    subscribe(stranger, list_id, email, **{"User-Agent": user_agent})
    [entry] = read_consent(client, list_id, find_member_id(client, list_id, email))
    assert entry["browser"] == browser


def test_consent_shows_nothing_of_lists_of_other_owners(
    other_owner: httpx2.Client, reader: Reader, list_id: int
) -> None:
    foreign_list_id = new_list(other_owner)["id"]
    reader.joins(list_id).joins(foreign_list_id)
    [entry] = read_consent(other_owner, foreign_list_id, reader.user_id)
    assert entry["list_id"] == foreign_list_id


def test_each_consent_wording_is_kept_as_a_version(
    client: httpx2.Client, make_reader: Callable[[], Reader]
) -> None:
    mailing_list = new_list(client)
    list_id = mailing_list["id"]
    assert (mailing_list["consent_wording"], mailing_list["consent_wording_version"]) == (
        None,
        None,
    )
    member_ids = []
    for wording, version in (("One", 1), ("Two", 2), ("One", 1), (None, None), (" ", None)):
        changed_list = data(client.patch(f"/lists/{list_id}", json={"consent_wording": wording}))
        expected_wording = wording if version else None
        assert (changed_list["consent_wording"], changed_list["consent_wording_version"]) == (
            expected_wording,
            version,
        )
        member_ids.append(make_reader().joins(list_id).user_id)
    # The consent of each member contains the wording at the time of the sign-up.
    entries = [read_consent(client, list_id, each)[0] for each in member_ids]
    assert [(each["wording"], each["wording_version"]) for each in entries] == [
        *(("One", 1), ("Two", 2), ("One", 1), (None, None), (None, None))
    ]
    # Changes of other list attributes, such as the tagline, keep the consent wording.
    data(client.patch(f"/lists/{list_id}", json={"consent_wording": "Three"}))
    changed_list = data(client.patch(f"/lists/{list_id}", json={"tagline": "Daily"}))
    assert (changed_list["consent_wording"], changed_list["consent_wording_version"]) == (
        "Three",
        3,
    )
    assert data(client.get(f"/lists/{list_id}"))["consent_wording"] == "Three"


def test_consent_wordings_are_limited_in_length_and_number(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}"
    assert client.patch(path, json={"consent_wording": "x" * 2_001}).status_code == 422
    data(client.patch(path, json={"consent_wording": "ä" * 2_000}))
    stack.query(
        "INSERT INTO consent_wordings (list_id, version, wording)"
        " SELECT %s, n, 'Wording ' || n FROM generate_series(2, %s) AS n",
        list_id,
        MAX_WORDINGS,
    )
    problem(client.patch(path, json={"consent_wording": "New"}), 409, "list.consent_wordings")
    # A list with the maximum number of consent wordings can still return to one of its earlier
    # wordings.
    changed_list = data(client.patch(path, json={"consent_wording": "Wording 7"}))
    assert changed_list["consent_wording_version"] == 7


def test_erasure_deletes_every_consent_record_of_the_person(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    import_list_id = new_list(client)["id"]
    import_members_file(client, import_list_id, build_address_file(reader.email))
    reader.joins(list_id)
    count_entries = "SELECT count(*) FROM consent_entries WHERE user_id = %s"
    assert stack.query(count_entries, reader.user_id) == [(1,)]
    erase(stack.resources, reader.email)
    assert stack.query(count_entries, reader.user_id) == [(0,)]
    for erased_list_id in (list_id, import_list_id):
        assert read_consent(client, erased_list_id, reader.user_id) == []
