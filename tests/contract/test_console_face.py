"""The console's page of what a list shows to readers: look, words, form for other sites, mail."""

import html
from collections.abc import Iterator

import pytest

from models import Plan
from tests.consoles import OwnerAtConsole, at_console, calls_of, heading, shown, wrong_beside
from tests.contract.replies import data, send
from tests.contract.subscribers import new_list
from tests.stack import Stack

BLUE = "#1d4ed8"


@pytest.fixture
def owner(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as found:
        yield found


def page_of(owner: OwnerAtConsole, **fields: object) -> tuple[int, str]:
    """A new list's id, and the path of its page."""
    list_id: int = new_list(owner.api, title="Letters", **fields)["id"]
    return list_id, f"/console/lists/{list_id}/public"


def test_an_owner_sets_how_a_list_looks_and_readers_see_it(owner: OwnerAtConsole) -> None:
    list_id, path = page_of(owner)
    logo = data(send(owner.api))["hash_id"]
    hidden = data(send(owner.api, encrypted="1"))["hash_id"]
    text = owner.see(path)
    assert heading(text) == "Public page of Letters"
    assert f'<option value="{logo}"' in text
    assert hidden not in text
    text = owner.do(
        path,
        colour=BLUE,
        logo_hash_id=logo,
        sender_name="The Letters team",
        sign_up_text="One letter each morning.",
        thanks_text="Until tomorrow.",
        confirmation_text="Welcome!",
    )
    assert "What readers see is changed." in text
    made = data(owner.api.get(f"/lists/{list_id}"))
    assert (made["colour"], made["logo_hash_id"]) == (BLUE, logo)
    assert (made["sender_name"], made["thanks_text"]) == ("The Letters team", "Until tomorrow.")
    # The mail is shown as readers get it.
    assert "<bdi>The Letters team</bdi> via this installation" in text
    assert "Welcome!" in text.split('<pre class="mail"')[1]
    page = owner.visitor.client.get(f"/s/{made['slug']}").text
    assert "One letter each morning." in page
    assert BLUE in page
    assert "Nothing was to be changed." in owner.do(path)
    assert "What readers see is changed." in owner.do(path, colour="", logo_hash_id="")
    assert data(owner.api.get(f"/lists/{list_id}"))["logo_hash_id"] is None


def test_what_readers_could_not_read_or_trust_is_refused_beside_its_field(
    owner: OwnerAtConsole,
) -> None:
    list_id, path = page_of(owner)
    wrong = {
        "colour": "#ffee00",
        "logo_hash_id": "nosuchimage1",
        "sender_name": "help@bank.example",
        "sign_up_text": "Go to www.bank.example now.",
    }
    for name, value in wrong.items():
        text = shown(owner.send(path, **{name: value}), 422)
        assert wrong_beside(text, name), name
        # What was typed is kept; a logo is chosen.
        assert name == "logo_hash_id" or html.escape(value) in text
    assert data(owner.api.get(f"/lists/{list_id}"))["colour"] is None


def test_the_form_for_other_sites_and_the_mail_are_there_in_each_language(
    owner: OwnerAtConsole,
) -> None:
    list_id, path = page_of(owner, confirm_required=True)
    form = data(owner.api.get(f"/lists/{list_id}/embed"))["html"]
    text = owner.see(path)
    # As text to be copied, and not as a form of this page.
    assert form not in text
    assert form in html.unescape(text)
    reply = owner.api.get(f"/lists/{list_id}/previews/confirmation_mail?language=de")
    subject = data(reply)["subject"]
    assert subject not in text
    assert "German" in text
    assert subject in owner.see(path, language="de")
    [call] = calls_of(text)
    assert (call.method, call.path) == ("PATCH", f"/lists/{list_id}")


def test_an_owner_of_the_free_plan_has_the_page_too(stack: Stack) -> None:
    with at_console(stack, stack.new_owner(plan=Plan.FREE)) as owner:
        _, path = page_of(owner)
        assert "What readers see is changed." in owner.do(path, sign_up_text="Welcome.")
