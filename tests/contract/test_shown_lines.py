"""Names, titles and words that are shown: seen, in every script, and turning nothing around."""

import httpx
import pytest

from tests.contract.attributes import put
from tests.contract.replies import data, problem
from tests.contract.segments import VIP, new_segment
from tests.contract.subscribers import new_address, new_slug

OF_ALL_SCRIPTS = [
    "👩\u200d👧",
    # Persian, whose letters a joiner keeps apart.
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    # Arabic, with a mark behind its full stop.
    "\u064a\u0648\u0645.\u200f",
    "日刊",
]
UNSEEN = ["\u200b", "\u200d", "\u202e", "\u3164", "\u0301", "\ufe0f"]
TURNED = ["Daily \u202egpj.elif", "\u2066Daily\u2069", "\u202aDaily"]


@pytest.mark.parametrize("title", UNSEEN + TURNED)
def test_a_title_is_seen_and_turns_nothing_around(
    client: httpx.Client, list_id: int, title: str
) -> None:
    for reply in (
        client.post("/lists", json={"title": title, "slug": new_slug()}),
        client.patch(f"/lists/{list_id}", json={"title": title}),
    ):
        assert "visible" in problem(reply, 422, "list.title")["detail"]


@pytest.mark.parametrize("title", OF_ALL_SCRIPTS)
def test_a_title_is_of_any_script(client: httpx.Client, list_id: int, title: str) -> None:
    reply = client.patch(f"/lists/{list_id}", json={"title": title})
    assert data(reply)["title"] == title


@pytest.mark.parametrize("name", UNSEEN + TURNED)
def test_so_are_names_of_segments_fields_and_tags(
    client: httpx.Client, list_id: int, name: str
) -> None:
    segment = {"name": name, "filter": VIP}
    problem(client.post(f"/lists/{list_id}/segments", json=segment), 422, "segment.name")
    field = {"key": "city", "label": name, "type": "text"}
    problem(client.post("/fields", json=field), 422, "field.label")
    choice = {"key": "city", "label": "City", "type": "choice", "choices": ["Rome", name]}
    problem(client.post("/fields", json=choice), 422, "field.choices")
    email = new_address()
    put(client, list_id, email)
    tagged = client.patch(f"/lists/{list_id}/members/{email}", json={"tags": [name]})
    problem(tagged, 422, "body.invalid")


@pytest.mark.parametrize("name", OF_ALL_SCRIPTS)
def test_names_and_words_are_of_any_script(client: httpx.Client, list_id: int, name: str) -> None:
    assert new_segment(client, list_id, name=name)["name"] == name
    words = {"sender_name": name, "sign_up_text": f"{name}\n{name}", "thanks_text": name}
    changed = data(client.patch(f"/lists/{list_id}", json=words))
    assert {each: changed[each] for each in words} == words


@pytest.mark.parametrize(
    "text", ["evil\u200d.exa\u200cmple", "call 555\u200c123\u200d4567", *UNSEEN]
)
def test_joiners_hide_no_address_and_are_no_words(
    client: httpx.Client, list_id: int, text: str
) -> None:
    for name in ("sign_up_text", "thanks_text", "confirmation_text", "sender_name"):
        reply = client.patch(f"/lists/{list_id}", json={name: text})
        code = "list.sender_name" if name == "sender_name" else "list.words"
        problem(reply, 422, code)
