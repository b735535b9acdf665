"""How a page tells a number of members: at once, or with the way to the exact one."""

from types import SimpleNamespace

import pytest

from api.console.console_frame import console_part
from api.console.of_members.shown_counts import NOBODY, ShownCount
from api.console.typed_forms import TypedForm
from services.mailing.segments.counting import MemberCount

PAGE = "https://p.example/console/lists/1/segments/2"
RECOUNT = "?count=exactly"


def total_of(counted: ShownCount) -> str:
    values = {
        "base": "https://p.example",
        "path": "/console/lists/1/segments/2",
        "csrf_token": "",
        "list": SimpleNamespace(id=1, title="A list"),
        "segment_id": 2,
        "form": TypedForm(),
        "counted_now": counted,
    }
    text = console_part("segment.html", values)
    return text.split('<p class="total"')[1].split("</p>")[0]


def test_an_exact_number_is_told_as_it_is() -> None:
    assert "<b>0</b> members now" in total_of(NOBODY)
    text = total_of(ShownCount(MemberCount(1_234, is_exact=True), None))
    assert "<b>1,234</b> members now" in text
    assert "About" not in text
    assert "href" not in text


@pytest.mark.parametrize(
    ("count", "words"),
    [(1_234, "About <b>1,234</b> members now"), (None, "More than can be counted soon")],
)
def test_another_number_leads_to_the_exact_one_with_and_without_a_script(
    count: int | None, words: str
) -> None:
    text = total_of(ShownCount(MemberCount(count, is_exact=False), RECOUNT))
    assert words in text
    assert f'hx-get="{PAGE}{RECOUNT}"' in text
    assert f'href="{PAGE}{RECOUNT}"' in text
    # Whoever asked for it, and got none, is led in no circle.
    text = total_of(ShownCount(MemberCount(count, is_exact=False), None))
    assert words in text
    assert RECOUNT not in text
