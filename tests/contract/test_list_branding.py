"""Tests of a mailing list's branding: the colour, logo, texts and sender of its mails."""

import html
import re
from importlib.resources import files

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.subscriptions import colours
from services.subscriptions.colours import (
    DARK_GROUND,
    DARK_INK,
    LIGHT_GROUND,
    MIN_CONTRAST,
    compute_contrast,
    lighten_for_dark_mode,
)
from tests.support.http.pages import BROWSER_HEADERS, follow_redirect, read_heading
from tests.support.http.replies import data, problem, send
from tests.support.lists.subscribers import confirm, new_address, new_list

BLUE = "#1d4ed8"
WORDS = "One letter each morning.\nIn two minutes."


def picture(client: httpx2.Client, encrypted: str = "0") -> str:
    """A new attachment, by its hash id."""
    return str(data(send(client, encrypted=encrypted))["hash_id"])


def change(client: httpx2.Client, list_id: int, **fields: object) -> httpx2.Response:
    return client.patch(f"/lists/{list_id}", json=fields)


def test_sign_up_page_uses_the_list_colour_in_light_and_dark_mode(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, colour=BLUE.upper())
    assert made["colour"] == BLUE
    page = stranger.get(f"/s/{made['slug']}")
    assert read_heading(page) == made["title"]
    assert f":root {{ --accent: {BLUE};" in page.text
    assert f"--accent: {lighten_for_dark_mode(BLUE)};" in page.text
    # The policy allows both styles by their hashes, and no other.
    assert page.headers["content-security-policy"].count("'sha256-") == 2
    plain = stranger.get(f"/s/{new_list(client)['slug']}")
    assert plain.headers["content-security-policy"].count("'sha256-") == 1


def test_list_rejects_a_colour_without_enough_contrast(client: httpx2.Client) -> None:
    for colour, said in [
        ("#ff9900", "is 1.9 instead of"),
        ("#767676", "is 4.0 instead of"),
        ("#ffffff", "is 1.1 instead of"),
        ("red", "#rrggbb"),
        ("#12345", "#rrggbb"),
        ("#1d4ed8;}</style>", "#rrggbb"),
        ("url(https://evil.example)", "#rrggbb"),
    ]:
        made = new_list(client)
        error = problem(change(client, made["id"], colour=colour), 422, "list.colour")
        assert error["errors"][0]["field"] == "body.colour"
        assert said in error["detail"]
        assert data(client.get(f"/lists/{made['id']}"))["colour"] is None


@pytest.mark.parametrize("colour", ["#000000", "#00008b", "#6b21a8", "#9f2d16", "#0b6623"])
def test_accepted_list_colour_is_readable_in_light_and_dark_mode(colour: str) -> None:
    assert compute_contrast(colour, LIGHT_GROUND) >= MIN_CONTRAST
    assert compute_contrast("#ffffff", colour) >= MIN_CONTRAST
    dark = lighten_for_dark_mode(colour)
    assert compute_contrast(dark, DARK_GROUND) >= MIN_CONTRAST
    assert compute_contrast(DARK_INK, dark) >= MIN_CONTRAST
    for deep, ink in (
        (colours.darken_colour(colour), "#ffffff"),
        (colours.lighten_colour(dark), DARK_INK),
    ):
        assert compute_contrast(deep, ink) >= MIN_CONTRAST


def test_colour_contrast_matches_the_wcag_formula() -> None:
    assert compute_contrast("#000000", "#ffffff") == pytest.approx(21)
    assert compute_contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


def test_contrast_check_uses_the_background_colours_of_the_style_sheet() -> None:
    style = files("api.html").joinpath("style.css").read_text()
    light, dark = style.split("prefers-color-scheme: dark", 1)
    assert f"--paper: {LIGHT_GROUND};" in light
    assert f"--card: {DARK_GROUND};" in dark
    assert f"--paper: {DARK_INK};" in dark


def test_sign_up_page_shows_the_list_logo_and_its_policy_allows_the_image(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    hash_id = picture(client)
    made = new_list(client, logo_hash_id=hash_id)
    page = stranger.get(f"/s/{made['slug']}")
    found = re.search(r'<p class="logo"><img src="([^"]+)" alt=""></p>', page.text)
    assert found
    [images] = re.findall(r"img-src ([^;]+)", page.headers["content-security-policy"])
    assert any(found[1].startswith(f"{each}/media/") for each in images.split())
    assert stranger.get(found[1]).headers["content-type"] == "image/webp"
    assert data(client.delete(f"/attachments/{hash_id}")) == 1
    page = stranger.get(f"/s/{made['slug']}")
    assert read_heading(page) == made["title"]
    assert "<img" not in page.text


def test_list_logo_must_be_an_unencrypted_image_of_the_same_owner(
    client: httpx2.Client, other_owner: httpx2.Client
) -> None:
    made = new_list(client)
    foreign = picture(other_owner)
    secret = picture(client, encrypted="1")
    for hash_id in (foreign, secret, "000000000000", "../../etc", ""):
        reply = change(client, made["id"], logo_hash_id=hash_id)
        if hash_id:
            problem(reply, 422, "list.logo")
    assert data(client.get(f"/lists/{made['id']}"))["logo_hash_id"] is None


def test_sign_up_and_thanks_texts_are_shown_escaped_on_their_pages(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, sign_up_text=f"  {WORDS} <b> ", thanks_text="Until <tomorrow>.")
    page = stranger.get(f"/s/{made['slug']}")
    assert html.escape(f"{WORDS} <b>") in page.text
    form = {"email": new_address()}
    done = follow_redirect(
        stranger, stranger.post(f"/s/{made['slug']}", data=form, headers=BROWSER_HEADERS)
    )
    assert html.escape("Until <tomorrow>.") in done.text


def test_list_branding_texts_have_a_maximum_length(client: httpx2.Client, list_id: int) -> None:
    bounds = {"sign_up_text": 1000, "thanks_text": 1000, "confirmation_text": 200}
    for name, most in {**bounds, "sender_name": 40}.items():
        assert data(change(client, list_id, **{name: "x" * most}))[name] == "x" * most
        assert change(client, list_id, **{name: "x" * (most + 1)}).status_code == 422


def test_sender_name_rejects_characters_that_could_change_mail_headers(
    client: httpx2.Client, list_id: int
) -> None:
    for name in ('A" <b@c', "=?utf-8?q?x?=", "a, b", "a\r\nBcc: b", "Ada (x)"):
        assert change(client, list_id, sender_name=name).status_code == 422


def test_confirmation_mail_shows_the_list_branding_and_names_the_installation(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(
        client,
        title="Tea",
        confirm_required=True,
        colour=BLUE,
        sender_name="Ada & Söhne",
        confirmation_text="Welcome\nto <Tea>!",
        logo_hash_id=picture(client),
    )
    email = new_address()
    data(stranger.post(f"/subscriptions/{made['id']}", json={"email": email}))
    eventually(lambda: stack.mails(to=email), what="the confirmation")
    [mail] = stack.mails(to=email)
    headers = {name.lower(): value for name, value in dict(mail["headers"]).items()}
    sender = str(headers["from"])
    assert "Ada & Söhne via " in sender
    assert "“Welcome to <Tea>!”" in mail["text"]
    assert html.escape("“Welcome to <Tea>!”") in mail["html"]
    assert f"background:{BLUE}" in mail["html"]
    assert "<bdi>Tea</bdi>" in mail["html"]
    # The mail doesn't show the logo, because a stranger may have triggered the mail, and an image
    # can contain any text.
    assert "<img" not in mail["html"]


def test_welcome_mail_shows_the_list_logo(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, confirm_required=True, logo_hash_id=picture(client))
    email = new_address()
    data(stranger.post(f"/subscriptions/{made['id']}", json={"email": email}))
    eventually(lambda: stack.mails(to=email), what="the confirmation mail")
    [confirmation] = stack.mails(to=email)
    confirm(stranger, confirmation)
    eventually(lambda: len(stack.mails(to=email)) == 2, what="the welcome mail")
    [mail] = [each for each in stack.mails(to=email) if "/confirm?" not in each["text"]]
    [logo_url] = re.findall(r'<img src="([^"]+)"', mail["html"])
    assert stranger.get(logo_url).headers["content-type"] == "image/webp"


def test_owner_previews_list_pages_and_confirmation_mail(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    fields = {"colour": BLUE, "sender_name": "Ada", "confirmation_text": "Welcome!"}
    made = new_list(client, title="Tea", thanks_text="Until tomorrow.", **fields)
    path = f"/lists/{made['id']}/previews"
    sign_up = data(client.get(f"{path}/sign_up"))
    assert sign_up["html"] == stranger.get(f"/s/{made['slug']}").text
    assert "Until tomorrow." in data(client.get(f"{path}/thanks"))["html"]
    data(client.patch(f"/lists/{made['id']}", json={"confirm_required": True}))
    thanks = data(client.get(f"{path}/thanks"))["html"]
    assert "You’re subscribed" in thanks
    assert "Until tomorrow." in thanks
    mail = data(client.get(f"{path}/confirmation_mail"))
    assert mail["subject"] == "Confirm your subscription to “Tea”"
    assert mail["sender_name"] == "Ada"
    assert "“Welcome!”" in mail["text"]
    assert f"background:{BLUE}" in mail["html"]
    assert client.get(f"{path}/nothing").status_code == 400


def test_owner_previews_list_changes_without_saving_them(client: httpx2.Client) -> None:
    made = new_list(client, title="Tea", consent_wording="Old.")
    path = f"/lists/{made['id']}"
    before = data(client.get(f"/lists/{made['id']}"))
    change_to = {"title": "Coffee", "colour": BLUE, "consent_wording": "New.", "sender_name": "B"}
    shown = data(client.post(f"{path}/previews/sign_up", json=change_to))["html"]
    for text in ("Coffee", BLUE, "New."):
        assert text in shown
    mail = data(client.post(f"{path}/previews/confirmation_mail", json=change_to))
    assert ("“Coffee”" in mail["text"], mail["sender_name"]) == (True, "B")
    assert data(client.get(path)) == before
    # The next wording gets the number that the trial did not keep.
    assert (
        data(change(client, made["id"], consent_wording="Other."))["consent_wording_version"] == 2
    )
    pale = client.post(f"{path}/previews/thanks", json={"colour": "#ffff00"})
    problem(pale, 422, "list.colour")
