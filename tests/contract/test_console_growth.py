"""Tests of the tiles, the charts and the panels on the console page with the growth of a list."""

import html
import re
from datetime import timedelta

import pytest

from core import clock
from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.imports.bulk import build_address_file, build_addresses, import_members_file
from tests.support.lists.subscribers import Reader, new_list
from tests.support.people.consoles import OwnerAtConsole, at_console, rows_of
from tests.support.senders.mailings import new_mailing


@pytest.fixture
def growing_list_id(stack: Stack, console: OwnerAtConsole) -> int:
    """A list whose figures of the last 60 days are in the database, without its members."""
    list_id = int(new_list(console.api, confirm_required=True)["id"])
    stack.query("UPDATE lists SET created_at = now() - interval '60 days' WHERE id = %s", list_id)
    for days_ago, source, joined, gone in (
        (45, "form", 20, 2),
        (31, "form", 5, 0),
        (29, "import", 100, 0),
        (10, "form", 30, 4),
        (0, "form", 2, 3),
    ):
        day = clock.now().date() - timedelta(days=days_ago)
        stack.query(
            "INSERT INTO member_days VALUES (%s, %s, %s, 'free', %s, %s, 0, 0)",
            *(list_id, day, source, joined, gone),
        )
    stack.query("INSERT INTO subscriber_counts VALUES (%s, 148)", list_id)
    for days_ago, action, times in (
        (40, "requested", 4),
        (40, "confirmed", 1),
        (5, "requested", 8),
        (4, "confirmed", 6),
    ):
        stack.query(
            "INSERT INTO subscription_events"
            " (list_id, user_id, action, actor, via, status_after, created_at)"
            " SELECT %s, %s, %s, 'stranger', 'form', 'pending', now() - %s * interval '1 day'"
            " FROM generate_series(1, %s)",
            *(list_id, console.owner.user_id, action, days_ago, times),
        )
    return list_id


def read_tiles(text: str) -> dict[str, tuple[str, str]]:
    """Map the label of each tile to its number and its change."""
    [tiles] = re.findall(r'<nav class="tiles".*?</nav>', text, re.S)
    pattern = r"<a [^>]*>(\w+)\n<b>(.*?)</b> <span[^>]*>(.*?)</span>"
    return {label: (number, change) for label, number, change in re.findall(pattern, tiles)}


def read_bars(text: str) -> list[str]:
    return re.findall(r'<rect class="(joined|left)"', text)


def read_titles(text: str) -> list[str]:
    _, _, chart = text.partition("<figure")
    return [each.partition(": ")[2] for each in re.findall("<title>(.*?)</title>", chart)]


def test_tiles_show_figures_and_their_change_against_the_period_before(
    console: OwnerAtConsole, growing_list_id: int
) -> None:
    path = f"/console/lists/{growing_list_id}"
    assert read_tiles(console.see(path)) == {
        "Members": ("148", "+125"),
        "Joined": ("32", "+7"),
        "Left": ("7", "+5"),
        "Confirmed": ("75 %", "+50 points"),
    }
    assert read_tiles(console.see(path, days="90")) == {
        "Members": ("148", "+148"),
        # The list is too new for a comparison with the 90 days before.
        "Joined": ("57", ""),
        "Left": ("9", ""),
        "Confirmed": ("58 %", ""),
    }


def test_each_tile_leads_to_its_chart_and_keeps_the_other_choices(
    console: OwnerAtConsole, growing_list_id: int
) -> None:
    path = f"/console/lists/{growing_list_id}"
    text = console.see(path, days="90", by="landing")
    links = [html.unescape(each) for each in re.findall(r'<a href="(\?days=[^"]+)"', text)]
    for figure in ("members", "joined", "left", "confirmed"):
        assert f"?days=90&figure={figure}&by=landing" in links
    assert "?days=365&figure=members&by=landing" in links
    assert "?days=90&figure=members&by=utm_campaign#origins" in links

    text = console.see(path)
    assert "<polyline" in text
    assert read_titles(text)[-1] == "148 members"
    assert read_titles(text)[0] == "123 members"
    assert "<b>148 active members</b>, <b>net +125</b>, with 100 imported members" in text
    text = console.see(path, figure="joined")
    assert sorted(read_bars(text)) == ["joined", "joined", "left", "left"]
    assert read_titles(text)[-1] == "2 joined, 3 left"
    text = console.see(path, figure="left")
    assert read_bars(text) == ["left", "left"]
    assert "<b>7 left</b>" in text
    text = console.see(path, figure="confirmed")
    assert [each for each in read_titles(text) if each != "0 asked, 0 confirmed"] == [
        "8 asked, 6 confirmed",
    ]
    assert ["8", "6"] in [row[1:] for row in rows_of(text)]
    assert "<polyline" in console.see(path, figure="nonsense", by="nonsense")


def test_confirmation_chart_has_a_gap_where_confirmations_are_no_longer_stored(
    stack: Stack, console: OwnerAtConsole, growing_list_id: int
) -> None:
    # Nobody confirmed a request of the last weeks, which is a rate of 0 %.
    stack.query(
        "DELETE FROM subscription_events WHERE list_id = %s AND action = 'confirmed'",
        growing_list_id,
    )
    retention = {"PRESSROOM_RETENTION": "subscription_events=365"}
    with (
        stack.run_second_api(None, **retention) as second_stack,
        at_console(second_stack, console.owner) as owner,
    ):
        path = f"/console/lists/{growing_list_id}"
        text = owner.see(path, days="1095", figure="confirmed")
    titles = read_titles(text)
    # Each column covers three weeks.
    assert titles.count("no longer stored") == 35
    rates = {*titles} - {"no longer stored", "0 asked, 0 confirmed"}
    assert rates == {"4 asked, 0 confirmed", "8 asked, 0 confirmed"}
    assert read_bars(text) == ["joined", "joined"]
    assert [row[1:] for row in rows_of(text)].count(["–", "–"]) == 35


def test_chart_of_a_figure_that_is_always_zero_has_only_its_caption(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    import_members_file(console.api, list_id, build_address_file(*build_addresses(2)))
    text = console.see(f"/console/lists/{list_id}", figure="left")
    assert "<b>0 left</b>" in text
    assert "<title>" not in text.split("<figure")[1].split("</figure>")[0]


def test_panel_of_departures_says_that_it_leaves_out_members_without_mail(
    console: OwnerAtConsole, reader: Reader
) -> None:
    list_id = int(new_list(console.api)["id"])
    reader.joins(list_id)
    reader.wants_mail(list_id, False)
    text = console.see(f"/console/lists/{list_id}")
    assert "Why people left" not in text
    reader.leaves(list_id)
    text = console.see(f"/console/lists/{list_id}")
    assert ["Unsubscribed", "1"] in rows_of(text)
    assert "Members who turned off only their mail stay on the list, and aren’t counted." in text


def test_panels_lead_to_the_members_and_mailings_of_their_rows(
    stack: Stack, console: OwnerAtConsole
) -> None:
    list_id = new_list(console.api)["id"]
    emails = build_addresses(3)
    import_members_file(console.api, list_id, build_address_file(*emails))
    data(console.api.patch(f"/lists/{list_id}/members/{emails[0]}", json={"type": "gold"}))
    mailing_ids = [
        new_mailing(stack, list_id, rows=rows, label=f"Letter {rows}") for rows in range(1, 7)
    ]
    text = console.see(f"/console/lists/{list_id}")
    rows = rows_of(text)
    mailing_rows = rows[rows.index(["Mailing", "Left", "Recipients"]) + 1 :][:5]
    assert mailing_rows == [[f"Letter {number}", "0", str(number)] for number in range(6, 1, -1)]
    assert f'/console/lists/{list_id}/mailings/{mailing_ids[-1]}"><bdi>Letter 6<' in text
    for label, count in (("Gold", 1), ("Free", 2), ("Imported", 3)):
        [link] = re.findall(rf'href="([^"]+)"><bdi>{label}<', text)
        found = console.see(html.unescape(link).removeprefix(stack.api_url))
        assert f'class="meta">{count}<' in found
    # The longest bar belongs to the largest number.
    assert [row for row in rows if row[0] in ("Gold", "Free")] == [["Free", "2"], ["Gold", "1"]]
    widths = re.findall(r'<rect width="([\d.]+)%" height="100%"/></svg>\n<a [^>]*><bdi>(\w+)', text)
    assert {label: width for width, label in widths if label in ("Gold", "Free")} == {
        "Gold": "50.0",
        "Free": "100.0",
    }
