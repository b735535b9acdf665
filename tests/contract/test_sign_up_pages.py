"""The page of a list on which strangers subscribe, and the same form for a site of its owner's."""

import html
import re
import secrets
from typing import Any

import httpx2
import pytest

from api.cookies import SIGN_UP_COOKIE
from devstack.harness.stack import Stack
from services.subscriptions.sign_up_origins import ORIGIN_NAMES
from tests.support.http.pages import BROWSER_HEADERS, follow_redirect, read_heading, require_headers
from tests.support.http.replies import data
from tests.support.http.replies import send as send_picture
from tests.support.lists.segments import new_field
from tests.support.lists.sign_up_forms import OWNER_ORIGIN, TITLE, WIDGET_FIELDS
from tests.support.lists.subscribers import known_member, member, new_address, new_list

WORDING = "I want <The Letter> by e-mail."
MANY = ("email", "name", "fields.city", "fields.visits", "fields.born", "fields.news", "fields.tea")


def inputs(text: str) -> dict[str, str]:
    """Return the visible inputs of a form, as a dict from name to HTML tag."""
    tags = re.findall(r'(<(?:input|select)\b[^>]*\bname="([^"]+)"[^>]*>)', text)
    return {name: html.unescape(tag) for tag, name in tags if 'type="hidden"' not in tag}


def unpaired(text: str) -> set[str]:
    """Return the ids of inputs without a label next to them, and of labels without an input."""
    found = re.findall(r' id="([^"]+)"', "".join(inputs(text).values()))
    return set(found) ^ set(re.findall(r'<label for="([^"]+)"', text))


@pytest.fixture(autouse=True)
def _add_field_of_each_type(client: httpx2.Client) -> None:
    """Create a public custom field of each type, and a private custom field."""
    for key, kind in (
        ("city", "text"),
        ("visits", "number"),
        ("born", "date"),
        ("news", "boolean"),
    ):
        new_field(client, key, kind, public=True)
    new_field(client, "tea", "choice", public=True, choices=["Green <tea>", "Black"])
    new_field(client, "note")


@pytest.fixture
def sign_up_path(client: httpx2.Client) -> str:
    """The URL path of the sign-up page of a new mailing list."""
    return f"/s/{new_list(client, title=TITLE)['slug']}"


def send(stranger: httpx2.Client, sign_up_path: str, **fields: str) -> httpx2.Response:
    return stranger.post(sign_up_path, data=fields, headers=BROWSER_HEADERS)


def wrong(reply: httpx2.Response) -> dict[str, str]:
    """Return the error messages on a page, as a dict from input name to message."""
    pattern = r'<p class="wrong" role="alert" id="([\w.]+)-problem">(.*?)</p>'
    return {name: html.unescape(text) for name, text in re.findall(pattern, reply.text)}


def test_sign_up_page_asks_for_public_fields_and_shows_the_consent_wording(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, title=TITLE, consent_wording=WORDING, tagline="Each <morning>")
    page = stranger.get(f"/s/{made['slug']}")
    assert read_heading(page) == TITLE
    for text in (WORDING, "Each <morning>"):
        assert html.escape(text) in page.text
    assert "By subscribing you agree: <bdi>I want" in page.text
    assert tuple(inputs(page.text)) == MANY
    assert "note" not in page.text
    # A checkbox is placed inside its label, so that it has no separate label.
    assert unpaired(page.text) == {"fields.news"}
    assert page.headers["content-language"] == "en"


def test_sign_up_page_describes_itself_to_sites_that_preview_links(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    plain = new_list(client, title=TITLE)
    assert previewed(stranger, plain) == {
        "og:type": "website",
        "og:title": TITLE,
        "og:url": f"{stack.api_url}/s/{plain['slug']}",
    }
    picture_url = "https://www.example.com/a.png?x=1&y=2"
    pictured = new_list(client, title=TITLE, avatar_image_url=picture_url)
    assert previewed(stranger, pictured)["og:image"] == picture_url
    logo = str(data(send_picture(client))["hash_id"])
    data(client.patch(f"/lists/{pictured['id']}", json={"logo_hash_id": logo}))
    logo_url = previewed(stranger, pictured)["og:image"]
    assert logo in logo_url
    assert stranger.get(logo_url).status_code == 200


def previewed(stranger: httpx2.Client, mailing_list: dict[str, Any]) -> dict[str, str]:
    """Return the Open Graph properties of the list's sign-up page."""
    text = stranger.get(f"/s/{mailing_list['slug']}").text
    pairs = re.findall(r'<meta property="(og:\w+)" content="([^"]*)">', text)
    return {name: html.unescape(value) for name, value in pairs}


def test_sign_up_page_subscribes_a_person_with_their_field_values(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, title=TITLE)
    email = new_address()
    answers = {
        "city": " Paris ",
        "visits": "2",
        "born": "1990-02-01",
        "news": "yes",
        "tea": "Black",
    }
    reply = send(
        stranger,
        f"/s/{made['slug']}",
        email=email,
        name="Ada",
        colour="an input of nobody's",
        **{f"fields.{key}": value for key, value in answers.items()},
    )
    assert reply.status_code == 303
    require_headers(reply, cookies=[SIGN_UP_COOKIE.name])
    assert read_heading(follow_redirect(stranger, reply)) == "Thank you"
    found = known_member(client, made["id"], email)
    assert (found["name"], found["source"], found["status"]) == ("Ada", "form", "active")
    assert found["fields"] == {**answers, "city": "Paris", "visits": 2, "news": True}


def test_consent_from_the_sign_up_page_records_its_url_and_wording(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, consent_wording=WORDING)
    email = new_address()
    send(stranger, f"/s/{made['slug']}", email=email)
    user_id = known_member(client, made["id"], email)["user_id"]
    [entry] = data(client.get(f"/lists/{made['id']}/members/{user_id}/consent"))["items"]
    assert entry["url"] == f"{stack.api_url}/s/{made['slug']}"
    assert entry["wording"] == WORDING


def test_sign_up_page_shows_errors_next_to_their_inputs_and_keeps_all_input(
    client: httpx2.Client, stranger: httpx2.Client, sign_up_path: str
) -> None:
    written = {
        "email": new_address(),
        "name": 'A "quoted" name',
        "fields.city": "x" * 1001,
        "fields.visits": "many",
        "fields.born": "yesterday",
        "fields.tea": "Black",
    }
    reply = send(stranger, sign_up_path, **written)
    assert read_heading(reply, 422) == "Not subscribed yet"
    assert wrong(reply) == {
        "fields.city": "This answer is too long.",
        "fields.visits": "Please enter a number.",
        "fields.born": "Please enter a date as year-month-day, for example 2026-11-22.",
    }
    asked = inputs(reply.text)
    for name in ("email", "name", "fields.visits", "fields.born"):
        assert f'value="{written[name]}"' in asked[name]
    assert re.findall(r"<option[^>]* selected>(.*?)</option>", reply.text) == ["Black"]
    for name in wrong(reply):
        assert f'aria-invalid="true" aria-describedby="{name}-problem"' in asked[name]
    assert member(client, new_list(client)["id"], written["email"]) is None


def test_sign_up_page_redirects_only_to_allowed_origins_of_the_list(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, redirect_origins=[OWNER_ORIGIN])
    path = f"/s/{made['slug']}"
    url = f"{OWNER_ORIGIN}/thanks"
    page = stranger.get(path, params={"redirect_url": url})
    assert f'name="redirect_url" value="{url}"' in page.text
    assert "form-action 'self' https:" in page.headers["content-security-policy"]
    reply = send(stranger, path, email=new_address(), redirect_url=url)
    assert reply.headers["location"] == url
    hostile = "https://evil.example/"
    page = stranger.get(path, params={"redirect_url": hostile})
    assert "evil" not in page.text + page.headers["content-security-policy"]
    reply = send(stranger, path, email=new_address(), redirect_url=hostile)
    assert read_heading(follow_redirect(stranger, reply)) == "Thank you"


def test_sign_up_page_and_embedded_form_contain_the_challenge_widget(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, challenge_enabled=True, challenge_provider="turnstile")
    path = f"/s/{made['slug']}"
    email = new_address()
    shown = 'data-sitekey="sandbox-turnstile-site-key" data-action="subscribe"'
    assert shown in stranger.get(path).text
    pasted = data(client.get(f"/lists/{made['id']}/embed"))["html"]
    assert (shown in pasted, pasted.count("<script")) == (True, 1)
    assert shown in send(stranger, path, email=email).text
    assert member(client, made["id"], email) is None
    token = {WIDGET_FIELDS["turnstile"]: f"pass-{secrets.token_hex(6)}"}
    assert send(stranger, path, email=email, **token).status_code == 303
    assert known_member(client, made["id"], email)["source"] == "challenge"


def test_sign_up_page_of_an_unknown_or_archived_list_is_a_404_page(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    archived = new_list(client)
    data(client.delete(f"/lists/{archived['id']}"))
    for slug in ["no-such-list", "NO", "9" * 20, "%00", "a.b", archived["slug"]]:
        reply = stranger.get(f"/s/{slug}")
        assert read_heading(reply, 404) == "List not found"
        assert "Opening a link" not in reply.text
        assert read_heading(send(stranger, f"/s/{slug}", email=new_address()), 404)


def test_sign_up_page_rejects_json_bodies_and_wrong_methods_with_a_page(
    stranger: httpx2.Client, sign_up_path: str
) -> None:
    reply = stranger.post(sign_up_path, json={"email": new_address()})
    read_heading(reply, 415)
    wrong_method = stranger.put(sign_up_path)
    read_heading(wrong_method, 405)
    assert wrong_method.headers["allow"] == "GET, HEAD, POST"


def test_embedded_form_has_the_same_inputs_without_frame_and_style_and_script(
    stack: Stack, client: httpx2.Client
) -> None:
    made = new_list(client, title=TITLE, consent_wording=WORDING)
    told = data(client.get(f"/lists/{made['id']}/embed"))
    assert told["action"] == f"{stack.api_url}/subscriptions/{made['id']}"
    assert told["page_url"] == f"{stack.api_url}/s/{made['slug']}"
    assert tuple(inputs(told["html"])) == MANY
    assert unpaired(told["html"]) == set()
    assert html.escape(WORDING) in told["html"]
    for word in ("<iframe", "<script", "<style", " style=", " class="):
        assert word not in told["html"]


def test_embedded_form_with_origin_has_hidden_inputs_and_a_script_of_at_most_1_kb(
    client: httpx2.Client,
) -> None:
    made = new_list(client, title=TITLE)
    path = f"/lists/{made['id']}/embed"
    plain = data(client.get(path))["html"]
    form = data(client.get(path, params={"origin": "1"}))["html"]
    assert tuple(inputs(form)) == tuple(inputs(plain))
    hidden = re.findall(r'<input type="hidden" name="([^"]+)">', form)
    assert tuple(hidden) == ORIGIN_NAMES
    [script] = re.findall(r"<script>.*</script>", form, re.DOTALL)
    assert len(script.encode()) <= 1024
    assert form.index(script) < form.index("</form>")
    for word in ("cookie", "localStorage", "http"):
        assert word not in script


def test_sign_up_page_never_reveals_the_redirect_origins_of_the_list(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, redirect_origins=["https://not-public-yet.example"])
    path = f"/s/{made['slug']}"
    for each in (path, f"{path}/embed"):
        assert "not-public-yet" not in stranger.get(each).text
    assert stranger.get(f"{path}/embed").status_code == 404


def test_embedded_form_subscribes_its_sender(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client)
    email = new_address()
    told = data(client.get(f"/lists/{made['slug']}/embed"))
    answers = {**dict.fromkeys(inputs(told["html"]), ""), "email": email}
    reply = stranger.post(told["action"], data=answers, headers=BROWSER_HEADERS)
    assert read_heading(follow_redirect(stranger, reply)) == "Thank you"
    found = known_member(client, made["id"], email)
    assert (found["name"], found["fields"]) == (None, {})
