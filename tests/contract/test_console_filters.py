"""Tests of the console form for member filters, which works without a script."""

import html
import json
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.lists.bounces import bounce_hard, build_mailing
from tests.support.lists.engagement import INACTIVE_FOR_90_DAYS, record_engagement, set_mode
from tests.support.lists.segments import new_field, new_segment, put_member
from tests.support.lists.subscribers import new_list, require_member
from tests.support.people.consoles import OwnerAtConsole, forms_of, read_error, read_page, rows_of

MEMBERS: dict[str, dict[str, Any]] = {
    "ada@example.com": {"fields": {"city": "Berlin", "age": 36}, "tags": ["press"]},
    "bob@example.com": {"fields": {"city": "berlin", "age": 20}, "tags": ["guest"]},
    "cleo@example.com": {"fields": {"city": "Rome"}, "tags": ["press"]},
}


@pytest.fixture
def id_of_list_with_fields(console: OwnerAtConsole) -> int:
    """The id of a mailing list with the members that the constant `MEMBERS` describes."""
    for key, kind in (("city", "text"), ("age", "number")):
        new_field(console.api, key, kind)
    list_id: int = new_list(console.api)["id"]
    for email, values in MEMBERS.items():
        put_member(console.api, list_id, email, **values)
    return list_id


def form_of(console: OwnerAtConsole, path: str, **query: str) -> dict[str, str]:
    """Request a page with these query parameters, and return the fields of its first form."""
    (_, form), *_ = forms_of(console.visitor.get(path, **query))
    return dict(form)


def find_emails(console: OwnerAtConsole, list_id: int, form: dict[str, str]) -> set[str]:
    reply = console.visitor.get(f"/console/lists/{list_id}/members", **form)
    return {row[0] for row in rows_of(read_page(reply))[1:]}


def test_console_filter_form_adds_and_removes_conditions_without_a_script(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    path = f"/console/lists/{id_of_list_with_fields}/members"
    form = form_of(console, path)
    form = form_of(console, path, **form | {"do": "add:0", "new.0": "text:fields.city"})
    assert (form["field.0.0"], form["operator.0.0"], form["value.0.0"]) == ("fields.city", "is", "")
    # A condition without a value is ignored.
    assert find_emails(console, id_of_list_with_fields, form) == MEMBERS.keys()
    form["value.0.0"] = "Berlin"
    assert find_emails(console, id_of_list_with_fields, form) == {
        "ada@example.com",
        "bob@example.com",
    }
    form = form_of(console, path, **form | {"do": "add:0", "new.0": "number:fields.age"})
    form |= {"operator.0.1": "at_least", "value.0.1": "30"}
    assert find_emails(console, id_of_list_with_fields, form) == {"ada@example.com"}
    form["match.0"] = "none"
    assert find_emails(console, id_of_list_with_fields, form) == {"cleo@example.com"}
    # Links to the next page, to bulk actions and to segments contain the filter as JSON.
    reply = console.visitor.get(path, **form)
    assert "filter=%7B%22not%22" in reply.text
    form = form_of(console, path, **form, do="drop:0.0")
    assert (form["field.0.0"], form["value.0.0"]) == ("fields.age", "30")
    assert "field.0.1" not in form


def test_console_filter_form_opens_a_first_row_that_the_first_condition_replaces(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    path = f"/console/lists/{id_of_list_with_fields}/members"
    form = form_of(console, path)
    assert (form["field.0.0"], form["operator.0.0"], form["value.0.0"]) == ("tag", "is", "")
    form_with_value = form | {"value.0.0": "press"}
    assert find_emails(console, id_of_list_with_fields, form_with_value) == {
        "ada@example.com",
        "cleo@example.com",
    }
    form_with_condition = form_of(
        console, path, **form | {"do": "add:0", "new.0": "text:fields.city"}
    )
    assert form_with_condition["field.0.0"] == "fields.city"
    assert "field.0.1" not in form_with_condition


def test_console_filter_form_nests_groups_up_to_the_maximum_depth(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    path = f"/console/lists/{id_of_list_with_fields}/members"
    form = form_of(console, path)
    for place in ("0", "0.0", "0.0.0"):
        form = form_of(console, path, **form, do=f"group:{place}")
    innermost = "0.0.0.0"
    assert f"match.{innermost}" in form
    assert f'value="group:{innermost}"' not in console.visitor.get(path, **form).text
    form = form_of(
        console, path, **form | {"do": f"add:{innermost}", f"new.{innermost}": "label:tag"}
    )
    form |= {f"match.{innermost}": "none", f"value.{innermost}.0": "press"}
    assert find_emails(console, id_of_list_with_fields, form) == {"bob@example.com"}


SEGMENT_FILTERS: list[dict[str, Any]] = [
    {"field": "fields.city", "is": "Berlin"},
    {"all": [{"field": "tag", "is_not": "press"}, {"field": "fields.age", "at_least": 18.5}]},
    {"any": [{"field": "email", "in": ["a@x.org", "b@x.org"]}, {"field": "name", "exists": False}]},
    {
        "not": {
            "any": [{"field": "joined_at", "after": "2026-01-01"}, {"field": "type", "is": "gold"}]
        }
    },
    {"all": [{"not": {"field": "status", "is": "active"}}, {"field": "email_enabled", "is": True}]},
    {"not": {"all": [{"field": "source", "is": "import"}, {"field": "import_id", "exists": True}]}},
    {"field": "joined_at", "at_least": "2026-11-21T09:30:00Z"},
    {
        "any": [
            {"field": "joined_at", "before": {"days_ago": 90}},
            {"field": "bounced", "in": ["soft", "hard"]},
        ]
    },
    {
        "all": [
            {"field": "opens", "at_least": 3},
            {"field": "last_opened", "before": "2026-05-01"},
            {"field": "engagement_choice", "in": ["yes", "none"]},
        ]
    },
    {
        "all": [
            {"field": "paid_expiry", "at_most": {"days_ago": -7}},
            {"field": "paid_expiry", "exists": True},
            {"field": "joined_at", "before": {"days_ago": -1}},
            {"field": "created_at", "anniversary": -1},
            {"field": "joined_at", "anniversary": 0},
        ]
    },
]


@pytest.mark.parametrize("segment_filter", SEGMENT_FILTERS, ids=json.dumps)
def test_console_shows_any_segment_filter_as_rows_and_saves_the_filter_unchanged(
    console: OwnerAtConsole, id_of_list_with_fields: int, segment_filter: dict[str, Any]
) -> None:
    segment = new_segment(console.api, id_of_list_with_fields, segment_filter)
    path = f"/console/lists/{id_of_list_with_fields}/segments/{segment['id']}"
    assert "field.0.0" in form_of(console, path) or "match.0.0" in form_of(console, path)
    console.do(path, name="The same")
    stored_segment = data(
        console.api.get(f"/lists/{id_of_list_with_fields}/segments/{segment['id']}")
    )
    assert (stored_segment["name"], stored_segment["filter"]) == ("The same", segment_filter)


def test_console_filter_form_offers_days_ago_and_bounces(
    stack: Stack, console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    list_id = id_of_list_with_fields
    path = f"/console/lists/{list_id}/members"
    form = form_of(console, path)
    form = form_of(console, path, **form | {"do": "add:0", "new.0": "days_ago:joined_at"})
    form |= {"operator.0.0": "at_most", "value.0.0": "1"}
    assert find_emails(console, list_id, form) == set()
    form["operator.0.0"] = "at_least"
    assert find_emails(console, list_id, form) == MEMBERS.keys()
    page = console.visitor.get(path, **form).text
    assert 'aria-label="Remove: Joined (days ago) is at most 1"' in page
    assert 'value="1" type="number"' in page
    form["value.0.0"] = "4000"
    assert read_error(read_page(console.visitor.get(path, **form), 400), "value.0.0")
    assert console.see(path).count(">Bounced</a>") == 1
    user_id = require_member(console.api, list_id, "ada@example.com")["user_id"]
    bounce_hard(stack, build_mailing(list_id, user_id))
    [bounced_link] = re.findall(r'href="([^"]+)">Bounced</a>', console.see(path))
    reply = console.visitor.client.get(html.unescape(bounced_link))
    assert [row[0] for row in rows_of(read_page(reply))[1:]] == ["ada@example.com"]
    assert 'aria-current="true">Bounced</a>' in reply.text
    assert 'aria-label="Remove: Bounced: soft or hard"' in reply.text
    # The filter form has a checkbox for each type of bounce, soft and hard, so that owners don't
    # have to type the name of the type.
    ticked_options = re.findall(r'name="option\.0\.0\.\d" value="(\w+)" checked', reply.text)
    assert ticked_options == ["soft", "hard"]


def test_console_filter_form_offers_days_in_the_future_and_anniversaries(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    new_field(console.api, "birthday", "date")
    list_id = id_of_list_with_fields
    path = f"/console/lists/{list_id}/members"
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    birthday = date(1984, tomorrow.month, tomorrow.day)
    put_member(console.api, list_id, "ada@example.com", fields={"birthday": str(birthday)})
    put_member(
        console.api,
        list_id,
        "bob@example.com",
        type="gold",
        paid_expiry=f"{tomorrow}T12:00:00Z",
        fields={"birthday": str(tomorrow)},
    )
    options = re.findall(
        r'<option value="(\w+:(?:paid_expiry|fields\.birthday|joined_at))">([^<]+)<',
        console.see(path),
    )
    assert options == [
        ("moment:paid_expiry", "Paid until"),
        ("days_ago:paid_expiry", "Paid until (days ago)"),
        ("days_ahead:paid_expiry", "Paid until (days from now)"),
        ("day:fields.birthday", "Birthday"),
        ("days_ago:fields.birthday", "Birthday (days ago)"),
        ("days_ahead:fields.birthday", "Birthday (days from now)"),
        ("anniversary:fields.birthday", "Birthday (days until anniversary)"),
        ("moment:joined_at", "Joined"),
        ("days_ago:joined_at", "Joined (days ago)"),
        ("anniversary:joined_at", "Joined (days until anniversary)"),
    ]
    for choice, operator, days, email, words in (
        ("anniversary:fields.birthday", "anniversary", 1, "ada@", "(days until anniversary) is 1"),
        ("days_ahead:fields.birthday", "is", 1, "bob@", "(days from now) is 1"),
        ("days_ahead:paid_expiry", "at_most", 1, "bob@", "(days from now) is at most 1"),
        ("days_ahead:paid_expiry", "after", 0, "bob@", "(days from now) is more than 0"),
        ("days_ahead:paid_expiry", "before", 1, "", "(days from now) is less than 1"),
        ("days_ahead:paid_expiry", "at_least", 1, "bob@", "(days from now) is at least 1"),
    ):
        form = form_of(console, path, **{"match.0": "all", "do": "add:0", "new.0": choice})
        form |= {"operator.0.0": operator, "value.0.0": str(days)}
        expected = {f"{email}example.com"} if email else set()
        assert find_emails(console, list_id, form) == expected, (choice, operator)
        page = console.visitor.get(path, **form).text
        assert f'{words}"><bdi>' in page
        assert f'value="{days}" type="number"' in page
    form = form_of(
        console, path, **{"match.0": "all", "do": "add:0", "new.0": "anniversary:joined_at"}
    )
    assert form["operator.0.0"] == "anniversary"
    for value in ("61", "1.5"):
        form["value.0.0"] = value
        page = read_page(console.visitor.get(path, **form), 400)
        assert read_error(page, "value.0.0").startswith("Must be a whole number of days")


def test_console_describes_a_segment_with_anniversaries_in_words(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    new_field(console.api, "birthday", "date")
    list_id = id_of_list_with_fields
    birthday_filter = {
        "all": [
            {"field": "fields.birthday", "anniversary": -1},
            {"field": "fields.birthday", "after": {"days_ago": -30}},
            {"field": "joined_at", "after": {"days_ago": -30}},
        ]
    }
    segment = new_segment(console.api, list_id, birthday_filter)
    assert (
        "Birthday (days until anniversary) is -1 and Birthday (days from now) is more than 30"
        " and Joined (days ago) is less than -30"
    ) in console.see(f"/console/lists/{list_id}/segments")
    form = form_of(console, f"/console/lists/{list_id}/segments/{segment['id']}")
    assert [form[f"kind.0.{number}"] for number in range(3)] == [
        "anniversary",
        "days_ahead",
        "days_ago",
    ]
    assert [form[f"value.0.{number}"] for number in range(3)] == ["-1", "30", "-30"]


def test_console_filter_form_offers_engagement_under_labels(
    stack: Stack, console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    list_id = id_of_list_with_fields
    path = f"/console/lists/{list_id}/members"
    set_mode(stack, list_id, "all")
    for email, opens in (("ada@example.com", 4), ("bob@example.com", 0)):
        user_id = require_member(console.api, list_id, email)["user_id"]
        record_engagement(stack, list_id, user_id, date(2026, 5, 1), numbers=(9, opens, 0, 0))
    [group] = re.findall(r'<optgroup label="Engagement">(.*?)</optgroup>', console.see(path), re.S)
    assert re.findall(r'value="([^"]+)">', group) == [
        *("number:delivered", "number:opens", "number:machine_opens", "number:clicks"),
        *("day:measured_since", "days_ago:measured_since"),
        *("day:last_delivered", "days_ago:last_delivered"),
        *("day:last_opened", "days_ago:last_opened"),
        *("day:last_machine_opened", "days_ago:last_machine_opened"),
        *("day:last_clicked", "days_ago:last_clicked"),
        "word:engagement_choice",
    ]
    form = form_of(console, path, **{"match.0": "all", "do": "add:0", "new.0": "number:opens"})
    form |= {"operator.0.0": "at_most", "value.0.0": "3"}
    assert find_emails(console, list_id, form) == {"bob@example.com"}
    page = console.visitor.get(path, **form).text
    assert 'aria-label="Remove: Opens is at most 3"' in page


def test_console_suggests_segments_that_it_creates_only_when_the_owner_saves_them(
    stack: Stack, console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    list_id = id_of_list_with_fields
    path = f"/console/lists/{list_id}/segments"
    others = ["Bounced", "Came by a campaign"]
    assert list(find_suggestions(console, path)) == others
    for mode in ("consent", "all"):
        set_mode(stack, list_id, mode)
        suggestions = find_suggestions(console, path)
        assert list(suggestions) == ["Inactive for 90 days", "Clicked in 30 days", *others]
    for name, link in suggestions.items():
        reply = console.visitor.client.get(link)
        assert "field.0.0" in dict(forms_of(reply)[0][1])
        assert dict(forms_of(reply)[0][1])["name"] == name
    assert data(console.api.get(f"/lists/{list_id}/segments"))["items"] == []
    _, form = forms_of(console.visitor.client.get(suggestions["Inactive for 90 days"]))[0]
    console.do(f"{path}/new", **form)
    [segment] = data(console.api.get(f"/lists/{list_id}/segments"))["items"]
    assert segment["filter"] == INACTIVE_FOR_90_DAYS
    text = console.see(path)
    assert "Measured since (days ago) is at least 90 and " in text
    assert "none of these: Last opened (days ago) is at most 90; " in text


def find_suggestions(console: OwnerAtConsole, path: str) -> dict[str, str]:
    """Return the links of the suggested segments by their names."""
    [section] = re.findall(
        r'aria-labelledby="suggestions">(.*?)</section>', console.see(path), re.S
    )
    links = re.findall(r'<a href="([^"]+)">([^<]+)</a>', section)
    return {name: html.unescape(link) for link, name in links}


def test_console_shows_a_multiline_filter_as_json_with_the_reason(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    segment_filter = {"field": "name", "is": "two\nlines"}
    segment = new_segment(console.api, id_of_list_with_fields, segment_filter)
    path = f"/console/lists/{id_of_list_with_fields}/segments/{segment['id']}"
    text = console.see(path)
    assert "A value of Name is empty or has several lines." in text
    assert json.loads(form_of(console, path)["filter"]) == segment_filter
    console.do(path, name="Still so")
    stored_segment = data(
        console.api.get(f"/lists/{id_of_list_with_fields}/segments/{segment['id']}")
    )
    assert (stored_segment["name"], stored_segment["filter"]) == ("Still so", segment_filter)


def test_console_shows_filter_errors_next_to_their_rows(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    new_segment_path = f"/console/lists/{id_of_list_with_fields}/segments/new"
    common_fields = {"match.0": "all", "field.0.0": "fields.age", "kind.0.0": "number"}
    for operator, value in (("is", "old"), ("is", ""), ("contains", "3")):
        form = common_fields | {"name": "Adults", "operator.0.0": operator, "value.0.0": value}
        text = read_page(console.send(new_segment_path, **form), 400 if value else 422)
        assert read_error(text, "value.0.0"), (operator, value)
    assert data(console.api.get(f"/lists/{id_of_list_with_fields}/segments"))["items"] == []


def test_console_counts_a_segment_during_editing_and_duplicates_a_segment(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    new_segment_path = f"/console/lists/{id_of_list_with_fields}/segments/new"
    form = {"field.0.0": "fields.city", "kind.0.0": "text", "operator.0.0": "is"}
    form["value.0.0"] = "berlin"
    assert "<b>2</b> members match" in read_page(console.send(new_segment_path, do="count", **form))
    console.do(new_segment_path, name="Berliners", **form)
    [created_segment] = data(console.api.get(f"/lists/{id_of_list_with_fields}/segments"))["items"]
    assert created_segment["filter"] == {"field": "fields.city", "is": "berlin"}
    path = f"/console/lists/{id_of_list_with_fields}/segments/{created_segment['id']}"
    assert f"segments/new?segment={created_segment['id']}" in console.see(path)
    copied_form = form_of(console, new_segment_path, segment=str(created_segment["id"]))
    assert (copied_form["name"], copied_form["value.0.0"]) == ("", "berlin")


def test_console_counts_a_segment_only_if_every_condition_is_complete(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    path = f"/console/lists/{id_of_list_with_fields}/segments/new"
    form = {"field.0.0": "fields.city", "kind.0.0": "text", "operator.0.0": "is"}
    form["value.0.0"] = "berlin"
    form |= {"field.0.1": "tag", "kind.0.1": "label", "operator.0.1": "is", "value.0.1": ""}
    page = read_page(console.send(path, do="count", **form))
    assert "Complete the condition to count." in page
    assert "match" not in page.partition('<div id="count"')[2].partition("</div>")[0]
    form["value.0.1"] = "press"
    assert "<b>1</b> member matches" in read_page(console.send(path, do="count", **form))


def test_console_filter_form_groups_the_attributes(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    page = console.see(f"/console/lists/{id_of_list_with_fields}/members")
    groups = {
        name: re.findall(r"<option [^>]*>([^<]+)</option>", options)
        for name, options in re.findall(
            r'<optgroup label="([^"]+)">(.*?)</optgroup>', page, re.DOTALL
        )
    }
    assert groups["Person"] == [
        "Tier",
        *("Paid until", "Paid until (days ago)", "Paid until (days from now)"),
        *("Address", "Name", "Tag"),
    ]
    assert groups["Own fields"] == ["City", "Age"]
    assert groups["Leaving"] == ["Left because"]
    assert "Source" in groups["Joining"]
    assert "UTM" not in page


def test_console_shows_no_count_after_the_last_condition_of_a_segment_was_removed(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    new_segment_path = f"/console/lists/{id_of_list_with_fields}/segments/new"
    page = read_page(console.send(new_segment_path, do="drop:0.0"))
    assert "Create segment" in page
    assert "match" not in page.partition('<div id="count"')[2].partition("</div>")[0]


def test_console_filter_chip_names_its_condition_and_links_to_its_removal(
    console: OwnerAtConsole, id_of_list_with_fields: int
) -> None:
    member_filter = {
        "all": [{"field": "fields.city", "is": "Berlin"}, {"field": "tag", "is": "press"}]
    }
    path = f"/console/lists/{id_of_list_with_fields}/members"
    text = console.visitor.get(path, filter=json.dumps(member_filter), q="a").text
    conditions = re.findall('aria-label="Remove: ([^"]*)"><bdi>', text)
    assert conditions == ["City is Berlin", "Tag is press"]
    remaining_query = "?q=a&amp;filter=%7B%22field%22%3A%22tag%22%2C%22is%22%3A%22press%22%7D"
    assert f'{path}{remaining_query}" aria-label="Remove: City is Berlin"' in text
