"""How members agreed: each way onto a list is written down once, and no owner rewrites it."""

from collections.abc import Callable
from typing import Any

import httpx2

from devstack.harness.stack import Stack
from services.subscriptions.consent.wordings import MAX_WORDINGS
from services.subscriptions.sign_up_origins import UTM_NAMES
from tests.support.commands.running import printed
from tests.support.http.replies import TIMESTAMP, data, problem
from tests.support.imports.bulk import add, imported, of_addresses
from tests.support.lists.people_on_lists import Subscriber
from tests.support.lists.subscribers import (
    Reader,
    known_member,
    new_address,
    new_list,
    trace_for,
)
from tests.support.people.erasure import erase

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
PAGE = "https://www.example.com/tea/join"
BROWSER = {"Referer": f"{PAGE}?campaign=secret-word#form", "User-Agent": FIREFOX}
ORIGIN = {"ip": "127.0.0.1", "url": PAGE, "browser": "Firefox on Linux"}
NOWHERE: dict[str, object] = {
    **dict.fromkeys(("ip", "url", "browser", "wording", "wording_version", "others_of_network")),
    "origin": None,
    "confirmed": False,
}
WORDING = "I want <Tea> by e-mail.\nI can leave at any time."


def consent(
    client: httpx2.Client, list_id: int, user_id: int, **query: Any
) -> list[dict[str, Any]]:
    reply = client.get(f"/lists/{list_id}/members/{user_id}/consent", params=query)
    return list(data(reply)["items"])


def subscribe(client: httpx2.Client, list_id: int, email: str, **headers: str) -> None:
    body = {"email": email}
    sent = {**BROWSER, **headers}
    assert data(client.post(f"/subscriptions/{list_id}", json=body, headers=sent)) == 1


def user_of(client: httpx2.Client, list_id: int, email: str) -> int:
    return int(known_member(client, list_id, email)["user_id"])


def shown(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: entry[name] for name in names}


def test_sign_up_form_records_consent_with_page_and_wording(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_list(client, consent_wording=f"  {WORDING} ")["id"]
    email = new_address()
    subscribe(stranger, list_id, email)
    [entry] = consent(client, list_id, user_of(client, list_id, email))
    assert TIMESTAMP.fullmatch(entry.pop("at"))
    assert entry == {
        **ORIGIN,
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
    # The member is on the list: once more changes nothing.
    subscribe(stranger, list_id, email)
    assert len(consent(client, list_id, user_of(client, list_id, email))) == 1


def test_sign_up_request_and_its_confirmation_record_one_consent_each(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, confirm_required=True, consent_wording=WORDING)
    email = new_address()
    list_id = made["id"]
    for _ in range(2):
        subscribe(stranger, list_id, email)
    user_id = user_of(client, list_id, email)
    waiting = Subscriber(stack, list_id, user_id, email)
    [asked_for] = consent(client, list_id, user_id)
    assert shown(asked_for, "how", "confirmed") == {"how": "form", "confirmed": False}
    token = waiting.mailed_token()
    asked = stranger.get("/confirm", params={"token": token})
    assert "I want &lt;Tea&gt; by e-mail." in asked.text
    for _ in range(2):
        pressed = stranger.post("/confirm", params={"token": token}, headers=BROWSER)
        assert pressed.status_code == 303
    found = consent(client, list_id, user_id)
    assert [each["how"] for each in found] == ["confirmation", "form"]
    assert [each["confirmed"] for each in found] == [True, True]
    assert shown(found[0], *ORIGIN, "wording") == {**ORIGIN, "wording": WORDING}
    assert token not in str(found)


def test_logged_in_join_records_consent_each_time_it_activates_the_person(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    join = f"/subscriptions/{list_id}/no-challenge"
    assert data(reader.client.post(join, headers=BROWSER)) == 1
    assert data(reader.client.post(join, headers=BROWSER)) == 0
    [entry] = consent(client, list_id, reader.user_id)
    assert shown(entry, "how", "claimed_by", "confirmed", *ORIGIN) == {
        **ORIGIN,
        "how": "login",
        "confirmed": True,
        "claimed_by": None,
    }
    reader.leaves(list_id)
    reader.wants_mail(list_id, enabled=False)
    assert len(consent(client, list_id, reader.user_id)) == 1
    reader.joins(list_id)
    assert [each["how"] for each in consent(client, list_id, reader.user_id)] == ["login"] * 2


def test_undone_unsubscription_records_consent(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    trace = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    for action in ("leave", "undo", "undo", "stop_mail", "resume_mail"):
        pressed = stranger.post("/unsubscribe", params=trace, data={"action": action})
        assert pressed.status_code == 303
    assert [each["how"] for each in consent(client, list_id, reader.user_id)] == ["link", "login"]


def test_consent_counts_other_unconfirmed_sign_ups_from_the_same_network(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    lists = [new_list(client)["id"] for _ in range(2)]
    emails = [new_address() for _ in range(3)]
    for email in emails:
        subscribe(stranger, lists[0], email)
    subscribe(stranger, lists[1], emails[0])
    # From elsewhere, from beside the others long ago, and as the owner says.
    for ip, email in (("192.0.2.7", new_address()), ("127.0.0.0/24", new_address())):
        subscribe(stranger, lists[0], email)
        stack.query(
            "UPDATE consent_entries SET ip = %s WHERE user_id = %s",
            *(ip, user_of(client, lists[0], email)),
        )
    add(client, lists[0], new_address())
    [entry] = consent(client, lists[0], user_of(client, lists[0], emails[0]))
    assert shown(entry, "confirmed", "others_of_network") == {
        "confirmed": False,
        "others_of_network": 3,
    }
    [entry] = consent(client, lists[1], user_of(client, lists[1], emails[0]))
    assert entry["others_of_network"] == 0
    assert printed(stack, "lists", "show", str(lists[0]))["most_of_network"] == 4


def test_imported_members_share_one_consent_record_that_is_the_owners_claim(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    emails = [new_address() for _ in range(3)]
    import_id = imported(client, list_id, of_addresses(*emails))["import_id"]
    rows = "SELECT count(*) FROM consent_entries WHERE list_id = %s"
    assert stack.query(rows, list_id) == [(0,)]
    for each in emails:
        [entry] = consent(client, list_id, user_of(client, list_id, each))
        assert TIMESTAMP.fullmatch(entry.pop("at"))
        assert entry == {
            **NOWHERE,
            "how": "import",
            "claimed_by": "owner",
            "list_id": list_id,
            "import_id": import_id,
        }
    one = new_address()
    assert data(add(client, list_id, one)) == 1
    [entry] = consent(client, list_id, user_of(client, list_id, one))
    assert shown(entry, "how", "claimed_by") == {"how": "import", "claimed_by": "owner"}


def test_member_added_by_the_owner_gets_consent_that_names_the_owner_as_claimant(
    client: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    path = f"/lists/{list_id}/members/{email}"
    for name in ("Ada", "Ada Reader"):
        made = data(client.put(path, json={"name": name}, headers=BROWSER))
    # Where the owner was when they did it says nothing of the person.
    [entry] = consent(client, list_id, made["user_id"])
    assert TIMESTAMP.fullmatch(entry.pop("at"))
    assert entry == {
        **NOWHERE,
        "how": "owner",
        "claimed_by": "owner",
        "list_id": list_id,
        "import_id": None,
    }


def move(client: httpx2.Client, source: int, user_id: int, target: int) -> None:
    path = f"/subscriptions/{source}/members/{user_id}/transfer"
    assert data(client.post(path, params={"dst_list_id": target}, headers=BROWSER)) == 1


def test_transfer_copies_the_consent_of_the_source_list(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    source = new_list(client, consent_wording="Of the source")["id"]
    email = new_address()
    target = new_list(client, consent_wording="Of the target")["id"]
    subscribe(stranger, source, email)
    user_id = user_of(client, source, email)
    before = consent(client, source, user_id)
    move(client, source, user_id, target)
    moved, first = consent(client, target, user_id)
    assert first == before[0]
    assert shown(first, "how", "wording", "list_id") == {
        "how": "form",
        "wording": "Of the source",
        "list_id": source,
    }
    # The owner's own action, who may be anywhere.
    assert moved | {"at": None} == {
        **NOWHERE,
        "at": None,
        "how": "transfer",
        "claimed_by": "owner",
        "list_id": target,
        "import_id": None,
    }
    assert consent(client, source, user_id) == before


def test_consent_is_not_duplicated_by_repeated_transfers(
    client: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    other = new_list(client)["id"]
    import_id = imported(client, list_id, of_addresses(email))["import_id"]
    user_id = user_of(client, list_id, email)
    for _ in range(2):
        move(client, list_id, user_id, other)
        move(client, other, user_id, list_id)
    found = consent(client, list_id, user_id)
    assert sorted((each["how"], each["list_id"]) for each in found) == sorted(
        [("import", list_id), *[("transfer", list_id)] * 2, *[("transfer", other)] * 2]
    )
    there = [each for each in consent(client, other, user_id) if each["how"] == "import"]
    assert [shown(each, "import_id", "list_id") for each in there] == [
        {"import_id": import_id, "list_id": list_id}
    ]


def test_transfer_to_a_list_with_the_member_merges_consent_of_both_lists(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    reader.joins(list_id).joins(other)
    move(client, list_id, reader.user_id, other)
    found = consent(client, other, reader.user_id)
    # No way onto the target: the member was there.
    assert [shown(each, "how", "list_id") for each in found] == [
        {"how": "login", "list_id": other},
        {"how": "login", "list_id": list_id},
    ]


REFERRERS = [
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


def test_consent_omits_a_referrer_that_is_no_plain_web_page(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    for referrer in REFERRERS:
        email = new_address()
        subscribe(stranger, list_id, email, Referer=referrer)
        [entry] = consent(client, list_id, user_of(client, list_id, email))
        assert entry["url"] is None


def test_consent_stores_only_a_known_browser_name_of_the_user_agent(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    for user_agent, browser in [
        (FIREFOX, "Firefox on Linux"),
        ("curl/8.0", None),
        ("", None),
        ("Firefox/" + "9" * 8_000 + "<script>", "Firefox"),
        ("=cmd|' /C calc'!A0", None),
    ]:
        email = new_address()
        subscribe(stranger, list_id, email, **{"User-Agent": user_agent})
        [entry] = consent(client, list_id, user_of(client, list_id, email))
        assert entry["browser"] == browser


def test_consent_shows_nothing_of_lists_of_other_owners(
    other_owner: httpx2.Client, reader: Reader, list_id: int
) -> None:
    theirs = new_list(other_owner)["id"]
    reader.joins(list_id).joins(theirs)
    [entry] = consent(other_owner, theirs, reader.user_id)
    assert entry["list_id"] == theirs


def test_each_consent_wording_is_kept_as_a_version(
    client: httpx2.Client, make_reader: Callable[[], Reader]
) -> None:
    letter = new_list(client)
    list_id = letter["id"]
    assert (letter["consent_wording"], letter["consent_wording_version"]) == (None, None)
    joined = []
    for wording, version in (("One", 1), ("Two", 2), ("One", 1), (None, None), (" ", None)):
        changed = data(client.patch(f"/lists/{list_id}", json={"consent_wording": wording}))
        text = wording if version else None
        assert (changed["consent_wording"], changed["consent_wording_version"]) == (text, version)
        joined.append(make_reader().joins(list_id).user_id)
    # A member shows the wording of their time.
    seen = [consent(client, list_id, each)[0] for each in joined]
    assert [(each["wording"], each["wording_version"]) for each in seen] == [
        *(("One", 1), ("Two", 2), ("One", 1), (None, None), (None, None))
    ]
    # Other changes leave it alone.
    data(client.patch(f"/lists/{list_id}", json={"consent_wording": "Three"}))
    changed = data(client.patch(f"/lists/{list_id}", json={"tagline": "Daily"}))
    assert (changed["consent_wording"], changed["consent_wording_version"]) == ("Three", 3)
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
    # What the list had before is none more.
    changed = data(client.patch(path, json={"consent_wording": "Wording 7"}))
    assert changed["consent_wording_version"] == 7


def test_erasure_deletes_every_consent_record_of_the_person(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    imported(client, other, of_addresses(reader.email))
    reader.joins(list_id)
    rows = "SELECT count(*) FROM consent_entries WHERE user_id = %s"
    assert stack.query(rows, reader.user_id) == [(1,)]
    erase(stack.resources, reader.email)
    assert stack.query(rows, reader.user_id) == [(0,)]
    for each in (list_id, other):
        assert consent(client, each, reader.user_id) == []
