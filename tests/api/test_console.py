"""Unit tests of the console, for example of its charts, formatted numbers and member counts."""

import hashlib
import re
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest

from api.console.composer.routes import describe_writers
from api.console.console_display import (
    build_curl_call,
    format_change,
    format_count,
    format_distance,
    format_number,
)
from api.console.frame import render_console_part
from api.console.growth import Figure, GrowthPlot, build_growth_plot, build_net_growth_plot
from api.console.members.filter_form import FilterDraft
from api.console.members.forms import NOBODY, MemberCount
from api.console.members.watches import build_watch_values
from api.console.typed_forms import TypedForm
from services.subscriptions.daily_figures import MemberFigures

CURRENT_TIME = datetime(2026, 11, 22, 13, 5, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (timedelta(0), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(seconds=60), "1 minute ago"),
        (timedelta(minutes=59, seconds=59), "59 minutes ago"),
        (timedelta(hours=1), "1 hour ago"),
        (timedelta(hours=47, minutes=59), "47 hours ago"),
        (timedelta(days=2), "2 days ago"),
        (timedelta(days=30), "30 days ago"),
        (timedelta(days=31), "22 Oct 2026"),
        (timedelta(seconds=-30), "in less than a minute"),
        (timedelta(minutes=-15), "in 15 minutes"),
        (timedelta(days=-7), "in 7 days"),
        # A file that expires after 7 days is shown as "in 7 days" right after its creation.
        (timedelta(days=-7, seconds=1), "in 7 days"),
        (timedelta(days=-365), "22 Nov 2027"),
    ],
)
def test_console_shows_times_as_distance_from_now(ago: timedelta, words: str) -> None:
    assert format_distance(CURRENT_TIME - ago, CURRENT_TIME) == words


def test_console_formats_thousands_changes_and_plurals() -> None:
    assert format_number(1_234_567) == "1,234,567"
    assert [format_change(each) for each in (1_234, 0, -5)] == ["+1,234", "0", "\N{MINUS SIGN}5"]
    assert [format_count(each, "member") for each in (0, 1, 2_000)] == [
        "0 members",
        "1 member",
        "2,000 members",
    ]


def test_curl_example_quotes_user_input_as_one_shell_word() -> None:
    call = build_curl_call("https://x.example", "POST", "/lists", {"title": "it's; rm -rf $HOME"})
    assert call == (
        "curl --request POST https://x.example/lists \\\n"
        '  --header "Authorization: Bearer $PRESSROOM_KEY" \\\n'
        "  --header 'Content-Type: application/json' \\\n"
        """  --data '{"title": "it'"'"'s; rm -rf $HOME"}'"""
    )


def build_plot(*numbers: tuple[int, int]) -> GrowthPlot:
    first_day = date(2026, 1, 1)
    return build_growth_plot(
        [
            MemberFigures(str(first_day + timedelta(days=day)), joined, left)
            for day, (joined, left) in enumerate(numbers)
        ]
    )


@pytest.mark.parametrize(
    ("days", "days_per_bar"), [(30, 1), (62, 1), (63, 7), (365, 7), (1_095, 21)]
)
def test_console_chart_groups_many_days_into_whole_weeks(days: int, days_per_bar: int) -> None:
    plot = build_plot(*[(1, 0)] * days)
    assert plot.days_of_span == days_per_bar
    assert len(plot.spans) <= 62
    assert sum(each.joined for each in plot.spans) == days
    assert plot.spans[-1].last == date(2026, 1, 1) + timedelta(days=days - 1)


@pytest.mark.parametrize(
    ("joined", "left", "marks"),
    [
        (0, 0, [1, 0]),
        (1, 0, [1, 0]),
        (0, 3, [0, -1, -2, -3]),
        (305, 0, [400, 300, 200, 100, 0]),
        (609, 304, [800, 600, 400, 200, 0, -200, -400]),
        (4_013, 1, [5_000, 4_000, 3_000, 2_000, 1_000, 0, -1_000]),
    ],
)
def test_console_chart_axis_has_round_integers_with_zero(
    joined: int, left: int, marks: list[int]
) -> None:
    plot = build_plot((joined, 0), (0, left))
    assert plot.marks == marks
    # The zero line and the bars match the marks, which are evenly spaced.
    height = marks[0] - marks[-1]
    assert plot.zero == pytest.approx(100 * marks[0] / height, abs=0.01)
    assert plot.columns[0].upper_height == pytest.approx(100 * joined / height, abs=0.01)
    assert plot.columns[1].lower_height == pytest.approx(100 * left / height, abs=0.01)


@pytest.mark.parametrize(
    ("days", "dates"),
    [
        (30, ["1 Jan", "8 Jan", "15 Jan", "22 Jan", "29 Jan"]),
        (90, [f"{date(2026, 1, 1) + timedelta(weeks=week):%-d %b}" for week in range(13)]),
        (365, [f"{date(2026, 1, 1) + timedelta(weeks=week):%-d %b}" for week in range(0, 53, 5)]),
        (
            1_095,
            [f"{date(2026, 1, 1) + timedelta(weeks=3 * span):%b %Y}" for span in range(0, 53, 5)],
        ),
    ],
)
def test_console_chart_shows_a_date_below_each_week(days: int, dates: list[str]) -> None:
    plot = build_plot(*[(1, 0)] * days)
    assert [each.label for each in plot.dates] == dates
    assert sum(not each.is_extra for each in plot.dates) <= 5


@pytest.mark.parametrize(
    ("changes", "marks", "net"),
    [
        ([0, 0, 0], [1, 0], [0, 0, 0]),
        ([1, 1, -1], [2, 1, 0], [1, 2, 1]),
        ([-3, 1, 0], [0, -1, -2, -3], [-3, -2, -2]),
        ([240, -300, 5], [300, 200, 100, 0, -100], [240, -60, -55]),
    ],
)
def test_console_line_of_net_growth_starts_at_zero_and_matches_its_marks(
    changes: list[int], marks: list[int], net: list[int]
) -> None:
    days = [
        MemberFigures(f"2026-01-0{day}", joined=max(change, 0), left=max(-change, 0))
        for day, change in enumerate(changes, start=1)
    ]
    plot = build_net_growth_plot(days)
    assert plot.marks == marks
    assert [day.value for day in plot.columns] == net
    assert plot.total.net == net[-1]
    height = marks[0] - marks[-1]
    for day, value in zip(plot.columns, net, strict=True):
        assert day.y == pytest.approx(100 * (marks[0] - value) / height, abs=0.01)
    assert plot.zero == pytest.approx(100 * marks[0] / height, abs=0.01)


def test_console_line_of_members_ends_at_the_current_number_and_has_an_axis_near_it() -> None:
    days = [
        MemberFigures("2026-01-01", joined=50, left=1, imported=40),
        MemberFigures("2026-01-02", joined=0, left=3),
        MemberFigures("2026-01-03", joined=10, left=4),
    ]
    plot = build_growth_plot(days, Figure.MEMBERS, 4_760)
    assert [day.value for day in plot.columns] == [4_757, 4_754, 4_760]
    assert plot.marks == [4_760, 4_758, 4_756, 4_754]
    assert [day.y for day in plot.columns] == [50, 100, 0]
    assert plot.columns[0].words == "1 Jan 2026: 4,757 members"
    # The area below the line ends at the lower edge, because the axis doesn't reach zero.
    assert plot.area.startswith(f"{plot.columns[0].centre},100 ")


@pytest.mark.parametrize(
    ("asked", "confirmed", "value"),
    [(0, 2, None), (2, 0, 0), (4, 3, 75), (2, 3, 100), (3, 2, 67)],
)
def test_console_chart_of_confirmations_shows_percentages(
    asked: int, confirmed: int, value: int | None
) -> None:
    days = [MemberFigures("2026-01-01", asked=asked, confirmed=confirmed)]
    plot = build_growth_plot(days, Figure.CONFIRMED)
    assert plot.columns[0].value == value
    assert plot.labels == ["100 %", "80 %", "60 %", "40 %", "20 %", "0 %"]


def test_console_chart_says_above_and_below_the_zero_line_what_it_counts() -> None:
    assert build_plot((30, 0), (0, 12)).labels == ["30 joined", "20", "10", "0", "10", "20 left"]
    assert build_plot((3, 0)).labels == ["3 joined", "2", "1", "0"]
    assert build_plot((0, 2)).labels == ["0", "1", "2 left"]


@pytest.mark.parametrize(
    ("form_values", "sentences"),
    [
        ({}, {}),
        (
            {"slug_by": "offline", "tweets_by": "offline"},
            {"Written without a language model.": ""},
        ),
        (
            {"slug_by": "offline", "tags_by": "offline", "tweets_by": "offline; cached"},
            {
                "Written without a language model.": "Slug, Tags",
                "Written earlier without a language model.": "Tweets",
            },
        ),
    ],
)
def test_composer_names_each_writer_only_once(
    form_values: dict[str, str], sentences: dict[str, str]
) -> None:
    assert describe_writers(form_values) == sentences


PAGE_URL = "https://p.example/console/lists/1/segments/2"
RECOUNT_QUERY = "?count=exactly"


def render_page(template: str, member_count: MemberCount, **more_values: Any) -> str:
    values = {
        "base": "https://p.example",
        "path": "/console/lists/1/segments/2",
        "csrf_token": "",
        "list": SimpleNamespace(id=1, title="A list"),
        "form": TypedForm(),
        "member_count": member_count,
        "draft": FilterDraft(None),
        "choices": {},
        "refusal": None,
    }
    return render_console_part(template, values | more_values)


def render_total(member_count: MemberCount) -> str:
    values = {"entry_count": None, **build_watch_values(None, TypedForm())}
    values |= {"segment_id": 2, "segment_name": "Tea drinkers"}
    text = render_page("segment.html", member_count, **values)
    return text.split('<p class="total"')[1].split("</p>")[0]


@pytest.mark.parametrize(
    ("member_count", "button"),
    [
        (NOBODY, "<button disabled>Apply</button>"),
        (MemberCount(0, is_exact=False, recount=RECOUNT_QUERY), "<button>Apply</button>"),
        (
            MemberCount(1_234, is_exact=False, recount=RECOUNT_QUERY),
            "<button>Apply to at least 1,234 members</button>",
        ),
    ],
)
def test_bulk_action_button_is_disabled_only_if_no_member_matches(
    member_count: MemberCount, button: str
) -> None:
    values: dict[str, Any] = {key: [] for key in ("actions", "tiers", "tags")}
    values |= {"filter_json": {}, "filter_text": "{}", "query": ""}
    text = render_page("new_bulk_action.html", member_count, **values)
    assert button in text


def test_exact_member_count_is_shown_without_recount_link() -> None:
    assert "<b>0</b> members match" in render_total(NOBODY)
    text = render_total(MemberCount(1_234, is_exact=True))
    assert "<b>1,234</b> members match" in text
    assert "At least" not in text
    assert "href" not in text


def test_inexact_member_count_links_to_exact_one_with_and_without_script() -> None:
    total = "At least <b>1,234</b> members match"
    text = render_total(MemberCount(1_234, is_exact=False, recount=RECOUNT_QUERY))
    assert total in text
    assert f'hx-get="{PAGE_URL}{RECOUNT_QUERY}"' in text
    assert f'href="{PAGE_URL}{RECOUNT_QUERY}"' in text
    # If an exact count was requested but isn't available, the page doesn't offer an exact count
    # again.
    text = render_total(MemberCount(1_234, is_exact=False))
    assert total in text
    assert RECOUNT_QUERY not in text


VENDORED_FOLDER = files("api.console").joinpath("static/vendored")
SCRIPT_ROW = re.compile(
    r"^\| `([\w.-]+)` \|.*\| \[0BSD\]\(([\w.-]+)\) \| `([0-9a-f]{64})` \|$", re.MULTILINE
)


def test_vendored_scripts_match_their_recorded_hash_and_licence() -> None:
    rows = SCRIPT_ROW.findall(VENDORED_FOLDER.joinpath("README.md").read_text())
    scripts = {each.name for each in VENDORED_FOLDER.iterdir() if each.name.endswith(".js")}
    assert scripts == {name for name, _, _ in rows}
    for name, licence, digest in rows:
        assert hashlib.sha256(VENDORED_FOLDER.joinpath(name).read_bytes()).hexdigest() == digest
        terms = " ".join(VENDORED_FOLDER.joinpath(licence).read_text().split())
        assert "for any purpose with or without fee is hereby granted" in terms
