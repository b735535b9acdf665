"""Numbers and moments in the console's words."""

from datetime import UTC, datetime, timedelta

import pytest

from api.console.console_display import counted, curl_call, moment, number, relative, signed

NOW = datetime(2026, 11, 22, 13, 5, 10, tzinfo=UTC)


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
        (timedelta(days=-365), "22 Nov 2027"),
    ],
)
def test_a_moment_is_told_by_its_distance(ago: timedelta, words: str) -> None:
    assert relative(NOW - ago, NOW) == words


def test_the_exact_moment_shows_at_hover() -> None:
    text = moment(datetime(2020, 2, 29, 23, 59, 58, tzinfo=UTC)).__html__()
    assert text == (
        '<time datetime="2020-02-29T23:59:58.000000Z" title="29 Feb 2020, 23:59:58 UTC">'
        "29 Feb 2020</time>"
    )


def test_numbers_have_their_thousands_and_things_their_plural() -> None:
    assert number(1_234_567) == "1,234,567"
    assert [signed(each) for each in (1_234, 0, -5)] == [
        "+1,234",
        "0",
        "\N{MINUS SIGN}5",
    ]
    assert [counted(each, "member") for each in (0, 1, 2_000)] == [
        "0 members",
        "1 member",
        "2,000 members",
    ]


def test_what_a_person_typed_is_one_word_of_the_call() -> None:
    call = curl_call("https://x.example", "POST", "/lists", {"title": "it's; rm -rf $HOME"})
    assert call == (
        "curl --request POST https://x.example/lists \\\n"
        '  --header "Authorization: Bearer $PRESSROOM_KEY" \\\n'
        "  --header 'Content-Type: application/json' \\\n"
        """  --data '{"title": "it'"'"'s; rm -rf $HOME"}'"""
    )
