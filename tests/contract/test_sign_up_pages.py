"""Tests of a list's sign-up page, and of the sign-up form for the owner's website."""

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
from tests.support.lists.subscribers import find_member, new_address, new_list, require_member

WORDING = "I want <The Letter> by e-mail."
PUBLIC_INPUTS = (
    "email",
    "name",
    "fields.city",
    "fields.visits",
    "fields.born",
    "fields.news",
    "fields.tea",
)


def read_visible_inputs(text: str) -> dict[str, str]:
    """Return the visible inputs of a form, as a dict from name to HTML tag."""
    tags = re.findall(r'(<(?:input|select)\b[^>]*\bname="([^"]+)"[^>]*>)', text)
    return {name: html.unescape(tag) for tag, name in tags if 'type="hidden"' not in tag}


def find_unpaired_ids(text: str) -> set[str]:
    """Return the ids of inputs without a label next to them, and of labels without an input."""
    input_ids = re.findall(r' id="([^"]+)"', "".join(read_visible_inputs(text).values()))
    return set(input_ids) ^ set(re.findall(r'<label for="([^"]+)"', text))


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


def read_errors(reply: httpx2.Response) -> dict[str, str]:
    """Return the error messages on a page, as a dict from input name to message."""
    pattern = r'<p class="wrong" role="alert" id="([\w.]+)-problem">(.*?)</p>'
    return {name: html.unescape(text) for name, text in re.findall(pattern, reply.text)}


def test_sign_up_page_asks_for_public_fields_and_shows_the_consent_wording(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, title=TITLE, consent_wording=WORDING, tagline="Each <morning>")
    page = stranger.get(f"/s/{mailing_list['slug']}")
    assert read_heading(page) == TITLE
    for text in (WORDING, "Each <morning>"):
        assert html.escape(text) in page.text
    assert "By subscribing you agree: <bdi>I want" in page.text
    assert tuple(read_visible_inputs(page.text)) == PUBLIC_INPUTS
    assert "note" not in page.text
    # A checkbox is placed inside its label, so that it has no separate label.
    assert find_unpaired_ids(page.text) == {"fields.news"}
    assert page.headers["content-language"] == "en"


def test_sign_up_page_describes_itself_to_sites_that_preview_links(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    plain_list = new_list(client, title=TITLE)
    assert read_open_graph(stranger, plain_list) == {
        "og:type": "website",
        "og:title": TITLE,
        "og:url": f"{stack.api_url}/s/{plain_list['slug']}",
    }
    picture_url = "https://www.example.com/a.png?x=1&y=2"
    list_with_picture = new_list(client, title=TITLE, avatar_image_url=picture_url)
    assert read_open_graph(stranger, list_with_picture)["og:image"] == picture_url
    logo_hash_id = str(data(send_picture(client))["hash_id"])
    data(client.patch(f"/lists/{list_with_picture['id']}", json={"logo_hash_id": logo_hash_id}))
    logo_url = read_open_graph(stranger, list_with_picture)["og:image"]
    assert logo_hash_id in logo_url
    assert stranger.get(logo_url).status_code == 200


def read_open_graph(stranger: httpx2.Client, mailing_list: dict[str, Any]) -> dict[str, str]:
    """Return the Open Graph properties of the list's sign-up page."""
    text = stranger.get(f"/s/{mailing_list['slug']}").text
    pairs = re.findall(r'<meta property="(og:\w+)" content="([^"]*)">', text)
    return {name: html.unescape(value) for name, value in pairs}


def test_sign_up_page_subscribes_a_person_with_their_field_values(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, title=TITLE)
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
        f"/s/{mailing_list['slug']}",
        email=email,
        name="Ada",
        colour="an input of nobody's",
        **{f"fields.{key}": value for key, value in answers.items()},
    )
    assert reply.status_code == 303
    require_headers(reply, cookies=[SIGN_UP_COOKIE.name])
    assert read_heading(follow_redirect(stranger, reply)) == "Thank you"
    subscriber = require_member(client, mailing_list["id"], email)
    assert (subscriber["name"], subscriber["source"], subscriber["status"]) == (
        "Ada",
        "form",
        "active",
    )
    assert subscriber["fields"] == {**answers, "city": "Paris", "visits": 2, "news": True}


def test_consent_from_the_sign_up_page_records_its_url_and_wording(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, consent_wording=WORDING)
    email = new_address()
    send(stranger, f"/s/{mailing_list['slug']}", email=email)
    user_id = require_member(client, mailing_list["id"], email)["user_id"]
    [entry] = data(client.get(f"/lists/{mailing_list['id']}/members/{user_id}/consent"))["items"]
    assert entry["url"] == f"{stack.api_url}/s/{mailing_list['slug']}"
    assert entry["wording"] == WORDING


def test_sign_up_page_shows_errors_next_to_their_inputs_and_keeps_all_input(
    client: httpx2.Client, stranger: httpx2.Client, sign_up_path: str
) -> None:
    values = {
        "email": new_address(),
        "name": 'A "quoted" name',
        "fields.city": "x" * 1001,
        "fields.visits": "many",
        "fields.born": "yesterday",
        "fields.tea": "Black",
    }
    reply = send(stranger, sign_up_path, **values)
    assert read_heading(reply, 422) == "Not subscribed yet"
    assert read_errors(reply) == {
        "fields.city": "This answer is too long.",
        "fields.visits": "Please enter a number.",
        "fields.born": "Please enter a date as year-month-day, for example 2026-11-22.",
    }
    shown_inputs = read_visible_inputs(reply.text)
    for name in ("email", "name", "fields.visits", "fields.born"):
        assert f'value="{values[name]}"' in shown_inputs[name]
    assert re.findall(r"<option[^>]* selected>(.*?)</option>", reply.text) == ["Black"]
    for name in read_errors(reply):
        assert f'aria-invalid="true" aria-describedby="{name}-problem"' in shown_inputs[name]
    assert find_member(client, new_list(client)["id"], values["email"]) is None


def test_sign_up_page_redirects_only_to_allowed_origins_of_the_list(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, redirect_origins=[OWNER_ORIGIN])
    path = f"/s/{mailing_list['slug']}"
    allowed_url = f"{OWNER_ORIGIN}/thanks"
    page = stranger.get(path, params={"redirect_url": allowed_url})
    assert f'name="redirect_url" value="{allowed_url}"' in page.text
    assert "form-action 'self' https:" in page.headers["content-security-policy"]
    reply = send(stranger, path, email=new_address(), redirect_url=allowed_url)
    assert reply.headers["location"] == allowed_url
    hostile_url = "https://evil.example/"
    page = stranger.get(path, params={"redirect_url": hostile_url})
    assert "evil" not in page.text + page.headers["content-security-policy"]
    reply = send(stranger, path, email=new_address(), redirect_url=hostile_url)
    assert read_heading(follow_redirect(stranger, reply)) == "Thank you"


def test_sign_up_page_and_embedded_form_contain_the_challenge_widget(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, challenge_enabled=True, challenge_provider="turnstile")
    path = f"/s/{mailing_list['slug']}"
    email = new_address()
    widget = 'data-sitekey="sandbox-turnstile-site-key" data-action="subscribe"'
    assert widget in stranger.get(path).text
    embedded_form = data(client.get(f"/lists/{mailing_list['id']}/embed"))["html"]
    assert (widget in embedded_form, embedded_form.count("<script")) == (True, 1)
    assert widget in send(stranger, path, email=email).text
    assert find_member(client, mailing_list["id"], email) is None
    passed_challenge = {WIDGET_FIELDS["turnstile"]: f"pass-{secrets.token_hex(6)}"}
    assert send(stranger, path, email=email, **passed_challenge).status_code == 303
    assert require_member(client, mailing_list["id"], email)["source"] == "challenge"


def test_sign_up_page_of_an_unknown_or_archived_list_is_a_404_page(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    archived_list = new_list(client)
    data(client.delete(f"/lists/{archived_list['id']}"))
    for slug in ["no-such-list", "NO", "9" * 20, "%00", "a.b", archived_list["slug"]]:
        reply = stranger.get(f"/s/{slug}")
        assert read_heading(reply, 404) == "This newsletter isn’t here"
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
    mailing_list = new_list(client, title=TITLE, consent_wording=WORDING)
    embedded_form = data(client.get(f"/lists/{mailing_list['id']}/embed"))
    assert embedded_form["action"] == f"{stack.api_url}/subscriptions/{mailing_list['id']}"
    assert embedded_form["page_url"] == f"{stack.api_url}/s/{mailing_list['slug']}"
    assert tuple(read_visible_inputs(embedded_form["html"])) == PUBLIC_INPUTS
    assert find_unpaired_ids(embedded_form["html"]) == set()
    assert html.escape(WORDING) in embedded_form["html"]
    for word in ("<iframe", "<script", "<style", " style=", " class="):
        assert word not in embedded_form["html"]


def test_embedded_form_with_origin_has_hidden_inputs_and_a_script_of_at_most_1_kb(
    client: httpx2.Client,
) -> None:
    mailing_list = new_list(client, title=TITLE)
    path = f"/lists/{mailing_list['id']}/embed"
    plain_form = data(client.get(path))["html"]
    form = data(client.get(path, params={"origin": "1"}))["html"]
    assert tuple(read_visible_inputs(form)) == tuple(read_visible_inputs(plain_form))
    hidden_names = re.findall(r'<input type="hidden" name="([^"]+)">', form)
    assert tuple(hidden_names) == ORIGIN_NAMES
    [script] = re.findall(r"<script>.*</script>", form, re.DOTALL)
    assert len(script.encode()) <= 1024
    assert form.index(script) < form.index("</form>")
    for word in ("cookie", "localStorage", "http"):
        assert word not in script


def test_sign_up_page_never_reveals_the_redirect_origins_of_the_list(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, redirect_origins=["https://not-public-yet.example"])
    path = f"/s/{mailing_list['slug']}"
    for page_path in (path, f"{path}/embed"):
        assert "not-public-yet" not in stranger.get(page_path).text
    assert stranger.get(f"{path}/embed").status_code == 404


def test_embedded_form_subscribes_its_sender(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client)
    email = new_address()
    embedded_form = data(client.get(f"/lists/{mailing_list['slug']}/embed"))
    answers = {**dict.fromkeys(read_visible_inputs(embedded_form["html"]), ""), "email": email}
    reply = stranger.post(embedded_form["action"], data=answers, headers=BROWSER_HEADERS)
    assert read_heading(follow_redirect(stranger, reply)) == "Thank you"
    subscriber = require_member(client, mailing_list["id"], email)
    assert (subscriber["name"], subscriber["fields"]) == (None, {})
