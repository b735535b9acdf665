"""Tests of the console pages on which owners create, change and archive mailing lists."""

import html
import re
import secrets
import string
from collections.abc import Callable
from datetime import timedelta

import httpx2

from core import clock
from devstack.harness.stack import Stack
from tests.support.http.replies import data, send
from tests.support.imports.bulk import build_address_file, import_members_file
from tests.support.lists.segments import new_field
from tests.support.lists.subscribers import Reader, new_list, subscribe, trace_for
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    calls_of,
    forms_of,
    heading,
    read_error,
    read_page,
    rows_of,
)

NEW_LIST_PATH = "/console/lists/new"


def generate_slug() -> str:
    return f"slug-{secrets.token_hex(6)}"


def generate_word() -> str:
    # A title with many digits is refused, because the digits could be a phone number.
    return "".join(secrets.choice(string.ascii_lowercase) for _ in range(12))


def list_titles(console: OwnerAtConsole) -> list[str]:
    return [each["title"] for each in data(console.api.get("/lists"))["items"]]


def test_console_creates_a_list_with_or_without_confirmation(console: OwnerAtConsole) -> None:
    slug = generate_slug()
    text = console.do(NEW_LIST_PATH, title="The Daily Demo", slug=slug, tagline="")
    assert heading(text) == "The Daily Demo"
    assert "The list “The Daily Demo” was created." in text
    [mailing_list] = data(console.api.get("/lists"))["items"]
    values = (mailing_list["title"], mailing_list["slug"], mailing_list["tagline"])
    assert values == ("The Daily Demo", slug, None)
    assert mailing_list["confirm_required"] is True
    console.do(NEW_LIST_PATH, 0, ("confirm_required",), title="Open to all", slug=generate_slug())
    assert [each["confirm_required"] for each in data(console.api.get("/lists"))["items"]] == [
        False,
        True,
    ]


def test_console_builds_the_slug_of_a_new_list_from_its_title(console: OwnerAtConsole) -> None:
    word = generate_word()
    console.do(NEW_LIST_PATH, title=f"Die Straße {word}", slug=" ")
    [mailing_list] = data(console.api.get("/lists"))["items"]
    assert mailing_list["slug"] == f"die-strasse-{word}"


def test_console_numbers_the_slug_of_a_title_that_another_list_has(
    stack: Stack, console: OwnerAtConsole
) -> None:
    title = f"{generate_word()} {'long ' * 14}"
    with at_console(stack) as other_owner:
        other_owner.do(NEW_LIST_PATH, title=title, slug="")
    slugs = []
    for _ in range(2):
        console.do(NEW_LIST_PATH, title=title, slug="")
        slugs.append(data(console.api.get("/lists"))["items"][0]["slug"])
    taken_slug = slugs[0].removesuffix("-2")
    assert slugs == [f"{taken_slug}-2", f"{taken_slug}-3"]
    # A slug that the owner typed isn't changed.
    reply = console.send(NEW_LIST_PATH, title=title, slug=slugs[0])
    assert reply.status_code == 409
    assert "Another list already has the slug" in read_error(reply.text, "slug")


def test_console_shows_new_list_errors_next_to_their_fields_and_keeps_the_input(
    console: OwnerAtConsole,
) -> None:
    taken_slug = new_list(console.api, title="Another")["slug"]
    for field_name, invalid_value, status, error in (
        ("slug", taken_slug, 409, "already has the slug"),
        ("title", " ", 422, "Enter a title."),
    ):
        form_values = {
            "title": "Title <b>",
            "slug": generate_slug(),
            "tagline": "A line",
            field_name: invalid_value,
        }
        reply = console.send(NEW_LIST_PATH, **form_values)
        assert error in read_error(read_page(reply, status), field_name)
        [(_, form)] = forms_of(reply)
        assert {name: form[name].strip() for name in form_values} == {
            name: value.strip() for name, value in form_values.items()
        }
    assert list_titles(console) == ["Another"]


def test_console_list_settings_change_only_what_was_edited(console: OwnerAtConsole) -> None:
    list_before = new_list(console.api, consent_wording="I want it.", confirm_required=True)
    path = f"/console/lists/{list_before['id']}/settings"
    text = console.do(
        path,
        0,
        ("confirm_required",),
        title="Another title",
        redirect_origins="https://www.example.com\r\n\r\n https://example.org ",
        confirmed_redirect="https://example.org/welcome",
        soft_bounce_limit="7",
    )
    assert heading(text) == "Settings"
    assert "<title>Settings of Another title – Pressroom</title>" in text
    assert "The settings were saved." in text
    list_after = data(console.api.get(f"/lists/{list_before['id']}"))
    expected = {
        "title": "Another title",
        "confirm_required": False,
        "redirect_origins": ["https://www.example.com", "https://example.org"],
        "confirmed_redirect": "https://example.org/welcome",
        "soft_bounce_limit": 7,
    }
    update_time = {"updated_at": list_after["updated_at"]}
    assert list_after == list_before | expected | update_time
    assert "There were no changes to save." in console.do(path)


def test_console_list_settings_offer_public_images_as_pictures_and_keep_other_urls(
    console: OwnerAtConsole,
) -> None:
    public_url = data(send(console.api))["view_url"]
    encrypted_url = data(send(console.api, encrypted="1"))["view_url"]
    external_url = "https://www.example.com/icon.png"
    list_before = new_list(console.api, favicon_image_url=external_url)
    path = f"/console/lists/{list_before['id']}/settings"
    assert encrypted_url not in console.see(path)
    assert console.see(path).count(f'<option value="{public_url}"') == 2
    console.do(path, avatar_image_url=public_url)
    list_after = data(console.api.get(f"/lists/{list_before['id']}"))
    image_urls = (list_after["avatar_image_url"], list_after["favicon_image_url"])
    assert image_urls == (public_url, external_url)


def test_console_rejects_list_settings_that_break_a_rule(console: OwnerAtConsole) -> None:
    list_before = new_list(console.api)
    for field_name, invalid_value in (
        ("title", ""),
        ("slug", "-"),
        ("redirect_origins", "https://www.example.com/path"),
        ("confirmed_redirect", "https://www.example.com/welcome"),
        ("avatar_image_url", "javascript:alert(1)"),
        ("consent_wording", "x" * 2001),
        ("challenge_provider", "other"),
        ("soft_bounce_limit", "21"),
        ("soft_bounce_limit", "five"),
    ):
        path = f"/console/lists/{list_before['id']}/settings"
        reply = console.send(path, **{field_name: invalid_value})
        assert read_error(read_page(reply, 422), field_name)
    assert data(console.api.get(f"/lists/{list_before['id']}")) == list_before


def test_console_archives_a_list_after_confirmation(console: OwnerAtConsole) -> None:
    mailing_list = new_list(console.api, title="To be ended")
    path = f"/console/lists/{mailing_list['id']}/archive"
    assert heading(console.see(path)) == "Archive To be ended?"
    assert list_titles(console) == ["To be ended"]
    text = console.do(path)
    assert "The list “To be ended” was archived." in text
    assert list_titles(console) == []
    for page in ("", "/settings", "/archive"):
        console.see(f"/console/lists/{mailing_list['id']}{page}", 404)


def test_console_list_page_shows_no_growth_from_an_undone_import(console: OwnerAtConsole) -> None:
    mailing_list = new_list(console.api)
    emails = [f"{name}.{mailing_list['slug']}@example.com" for name in ("a", "b", "c")]
    import_members_file(console.api, mailing_list["id"], build_address_file(emails[0]))
    result = import_members_file(console.api, mailing_list["id"], build_address_file(*emails))
    data(console.api.delete(f"/imports/{result['import_id']}/members"))
    path = f"/console/lists/{mailing_list['id']}"
    caption = "<b>0 joined</b>, 0 left, <b>net 0</b>, without 1 imported member"
    assert caption in console.see(path, figure="joined")
    assert [mailing_list["title"], "1", "0"] in [
        row[:3] for row in rows_of(console.see("/console/lists"))
    ]


def test_console_lists_show_the_growth_of_each_list_without_imported_members(
    console: OwnerAtConsole,
) -> None:
    growing_list = new_list(console.api, title="Grown")
    empty_list = new_list(console.api, title="Empty")
    import_members_file(
        console.api, growing_list["id"], build_address_file("a@example.com", "b@example.com")
    )
    data(subscribe(console.api, growing_list["id"], f"{growing_list['slug']}@example.com"))
    text = console.see("/console/lists")
    [points] = re.findall(r'<polyline points="(.*?)"/>', text)
    assert points.split() == [f"{100 * day / 29:.1f},100.0" for day in range(29)] + ["100.0,0.0"]
    rows = {row[0]: row[1:3] for row in rows_of(text)}
    assert rows[growing_list["title"]] == ["3", "+1"]
    assert "Last 30 days, without imports" in text
    assert rows[empty_list["title"]] == ["0", "0"]
    next_steps = {row[0]: row[3] for row in rows_of(text)}
    assert next_steps[growing_list["title"]] == "Send"
    assert next_steps[empty_list["title"]] == "Add members"
    assert f'/console/lists/{empty_list["id"]}/members"' in text


def test_console_list_page_shows_growth_and_members_by_tier_and_source(
    console: OwnerAtConsole,
) -> None:
    mailing_list = new_list(console.api)
    path = f"/console/lists/{mailing_list['id']}"
    assert "No members yet" in console.see(path)
    emails = [f"{name}.{mailing_list['slug']}@example.com" for name in ("a", "b", "c")]
    import_members_file(console.api, mailing_list["id"], build_address_file(*emails))
    data(
        console.api.patch(f"/lists/{mailing_list['id']}/members/{emails[0]}", json={"type": "gold"})
    )
    removed = data(console.api.get(f"/lists/{mailing_list['id']}/members/{emails[1]}"))
    data(console.api.delete(f"/subscriptions/{mailing_list['id']}/members/{removed['user_id']}"))
    assert [mailing_list["title"], "2", "\N{MINUS SIGN}1"] in [
        row[:3] for row in rows_of(console.see("/console/lists"))
    ]
    for days in ("30", "365", "nonsense"):
        text = console.see(path, days=days, figure="joined")
        rows = rows_of(text)
        assert ["Gold", "1"] in rows
        assert ["Free", "1"] in rows
        assert ["Imported", "2"] in rows
        assert ["0", "1", "\N{MINUS SIGN}1", "3"] in [row[1:] for row in rows]
        assert "1 left, <b>net \N{MINUS SIGN}1</b>, without 3 imported members" in text
        assert text.count('<rect class="joined"') == 0
        assert text.count('<rect class="left"') == 1


def test_console_growth_chart_leaves_out_imported_members(console: OwnerAtConsole) -> None:
    mailing_list = new_list(console.api)
    emails = [f"{name}.{mailing_list['slug']}@example.com" for name in ("a", "b", "c")]
    import_members_file(console.api, mailing_list["id"], build_address_file(*emails[:2]))
    data(subscribe(console.api, mailing_list["id"], emails[2]))
    text = console.see(f"/console/lists/{mailing_list['id']}", figure="joined")
    assert "0 left, <b>net +1</b>, without 2 imported members" in text
    assert "1 joined, 0 left, net +1, without 2 imported members." in text
    assert text.count('<rect class="joined"') == 1
    # The axis ends at the height of the only bar, which shows one person who signed up.
    assert "<span>1 joined</span><span>0</span>" in text
    assert ["Joined", "Left", "Net", "Imported"] in [row[1:] for row in rows_of(text)]
    assert ["1", "0", "+1", "2"] in [row[1:] for row in rows_of(text)]


def test_console_growth_chart_has_net_as_text_and_a_tooltip_for_each_period(
    console: OwnerAtConsole,
) -> None:
    mailing_list = new_list(console.api)
    data(subscribe(console.api, mailing_list["id"], f"{mailing_list['slug']}@example.com"))
    today = clock.now().date()
    for days, first_day in (
        ("30", today),
        ("365", today - timedelta(days=days_since_week_start(365))),
    ):
        path = f"/console/lists/{mailing_list['id']}"
        text = console.see(path, days=days, figure="joined")
        caption, chart = text.split("<figure")[1].split("</figure>")[0].split("</figcaption>")
        assert "<b>net +1</b>" in caption
        assert "net" not in chart.split("data-chart>")[1]
        assert "polyline" not in chart
        titles = re.findall("<title>(.*?)</title>", chart)
        assert len(titles) == (30 if days == "30" else 53)
        dates = f"{first_day.day} {first_day:%b %Y}"
        if first_day != today:
            dates += f" to {today.day} {today:%b %Y}"
        assert titles[-1] == f"{dates}: 1 joined, 0 left"


def days_since_week_start(days: int) -> int:
    """Return how many days ago the last weekly bar in a chart of ``days`` days begins."""
    return (days - 1) % 7


def test_api_call_shown_on_a_list_page_has_the_same_effect_as_its_form(
    console: OwnerAtConsole,
) -> None:
    [call] = calls_of(console.see(NEW_LIST_PATH))
    body = call.body | {"slug": generate_slug()}
    mailing_list = data(console.api.request(call.method, call.path, json=body))
    [call] = calls_of(console.see(f"/console/lists/{mailing_list['id']}/settings"))
    data(console.api.request(call.method, call.path, json=call.body | {"title": "By a program"}))
    assert list_titles(console) == ["By a program"]
    [call] = calls_of(console.see(f"/console/lists/{mailing_list['id']}/archive"))
    data(console.api.request(call.method, call.path))
    assert list_titles(console) == []


BLUE = "#1d4ed8"


def create_list(console: OwnerAtConsole, **fields: object) -> tuple[int, str]:
    """Create a list, and return its id and the path of the console page *Sign-up*."""
    list_id: int = new_list(console.api, title="Letters", **fields)["id"]
    return list_id, f"/console/lists/{list_id}/public"


def test_console_changes_list_branding_that_readers_see(console: OwnerAtConsole) -> None:
    list_id, path = create_list(console)
    logo_hash_id = data(send(console.api))["hash_id"]
    encrypted_hash_id = data(send(console.api, encrypted="1"))["hash_id"]
    text = console.see(path)
    assert heading(text) == "Sign-up page"
    assert "<title>Sign-up page of Letters – Pressroom</title>" in text
    assert f'<option value="{logo_hash_id}"' in text
    assert encrypted_hash_id not in text
    text = console.do(
        path,
        colour=BLUE,
        logo_hash_id=logo_hash_id,
        sender_name="The Letters team",
        sign_up_text="One letter each morning.",
        thanks_text="Until tomorrow.",
        confirmation_text="Welcome!",
    )
    assert "The sign-up page was changed." in text
    mailing_list = data(console.api.get(f"/lists/{list_id}"))
    assert (mailing_list["colour"], mailing_list["logo_hash_id"]) == (BLUE, logo_hash_id)
    texts = (mailing_list["sender_name"], mailing_list["thanks_text"])
    assert texts == ("The Letters team", "Until tomorrow.")
    # The console shows the confirmation mail as readers receive it.
    assert "<bdi>The Letters team via Pressroom &lt;pressroom@localhost&gt;</bdi>" in text
    assert "Welcome!" in text.split('<pre class="mail"')[1]
    page = console.visitor.client.get(f"/s/{mailing_list['slug']}").text
    assert "One letter each morning." in page
    assert BLUE in page
    # The console shows a preview of the sign-up page.
    assert "One letter each morning." in text.split("<iframe")[1].split("</iframe>")[0]
    assert "There were no changes to save." in console.do(path)
    assert "The sign-up page was changed." in console.do(path, usual_colour="yes", logo_hash_id="")
    changed_list = data(console.api.get(f"/lists/{list_id}"))
    assert (changed_list["colour"], changed_list["logo_hash_id"]) == (None, None)


def test_console_rejects_unreadable_or_misleading_list_branding(
    console: OwnerAtConsole,
) -> None:
    list_id, path = create_list(console)
    invalid_values = {
        "colour": "#ffee00",
        "logo_hash_id": "nosuchimage1",
        "sender_name": "help@bank.example",
        "sign_up_text": "Go to www.bank.example now.",
    }
    for field_name, value in invalid_values.items():
        text = read_page(console.send(path, **{field_name: value}), 422)
        assert read_error(text, field_name), field_name
        # After an error, the form still contains the texts that the owner typed. The form can't
        # contain an unknown logo, because the owner selects the logo from existing images.
        assert field_name == "logo_hash_id" or html.escape(value) in text
    assert data(console.api.get(f"/lists/{list_id}"))["colour"] is None


def test_console_shows_embed_form_and_confirmation_mail_in_each_language(
    console: OwnerAtConsole,
) -> None:
    list_id, path = create_list(console, confirm_required=True)
    embed_html = data(console.api.get(f"/lists/{list_id}/embed"))["html"]
    text = console.see(path)
    # The console shows the HTML of the form as text to copy, and not as a form.
    assert embed_html not in text
    assert embed_html in html.unescape(text)
    reply = console.api.get(f"/lists/{list_id}/previews/confirmation_mail?language=de")
    subject = data(reply)["subject"]
    assert subject not in text
    assert "German" in text
    assert subject in console.see(path, language="de")
    [call] = calls_of(text)
    assert (call.method, call.path) == ("PATCH", f"/lists/{list_id}")


def test_console_list_settings_choose_the_fields_of_the_sign_up_form(
    console: OwnerAtConsole,
) -> None:
    for key in ("city", "company"):
        new_field(console.api, key, public=True)
    mailing_list = new_list(console.api)
    path = f"/console/lists/{mailing_list['id']}/settings"
    console.do(path, field_city="required", field_company="no")
    mailing_list = data(console.api.get(f"/lists/{mailing_list['id']}"))
    assert (mailing_list["asked_fields"], mailing_list["required_fields"]) == (["city"], ["city"])
    console.do(path, field_city="asked", field_company="asked")
    mailing_list = data(console.api.get(f"/lists/{mailing_list['id']}"))
    assert (mailing_list["asked_fields"], mailing_list["required_fields"]) == (None, [])


def test_list_page_and_history_show_why_people_left(
    stack: Stack,
    console: OwnerAtConsole,
    stranger: httpx2.Client,
    make_reader: Callable[[], Reader],
) -> None:
    list_id = int(new_list(console.api)["id"])
    annoyed, quiet, stays = (make_reader().joins(list_id) for _ in range(3))
    quiet.leaves(list_id)
    path = f"/console/lists/{list_id}"
    assert "Chosen when unsubscribing" not in console.see(path)
    trace_id = trace_for(stack, list_id, annoyed.user_id)
    form = {"action": "leave", "reason": "too_many"}
    stranger.post("/unsubscribe", params={"trace_id": trace_id}, data=form)
    text = console.see(path)
    assert ["Unsubscribed", "2"] in rows_of(text)
    assert ["Too many e-mails", "1"] in rows_of(text)
    [link] = re.findall(r'href="([^"]+)"><bdi>Too many e-mails<', text)
    found = console.see(html.unescape(link).removeprefix(console.visitor.stack.api_url))
    assert annoyed.email in found.replace("<wbr>", "")
    assert quiet.email not in found.replace("<wbr>", "")
    history = console.see(f"{path}/members/{annoyed.user_id}")
    assert "Unsubscribed: too many e-mails" in history
    assert stays.read_status(list_id) == ("active", True)
