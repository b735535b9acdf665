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
from tests.support.lists.subscribers import await_mails, confirm, new_address, new_list

BLUE = "#1d4ed8"
SIGN_UP_TEXT = "One letter each morning.\nIn two minutes."


def upload_picture(client: httpx2.Client, encrypted: str = "0") -> str:
    """Upload a picture, and return its hash id."""
    return str(data(send(client, encrypted=encrypted))["hash_id"])


def change_list(client: httpx2.Client, list_id: int, **fields: object) -> httpx2.Response:
    return client.patch(f"/lists/{list_id}", json=fields)


def test_sign_up_page_uses_the_list_colour_in_light_and_dark_mode(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, colour=BLUE.upper())
    assert mailing_list["colour"] == BLUE
    page = stranger.get(f"/s/{mailing_list['slug']}")
    assert read_heading(page) == mailing_list["title"]
    assert f":root {{ --accent: {BLUE};" in page.text
    assert f"--accent: {lighten_for_dark_mode(BLUE)};" in page.text
    # The content security policy allows only the page's two inline style sheets, by their hashes.
    assert page.headers["content-security-policy"].count("'sha256-") == 2
    page_without_colour = stranger.get(f"/s/{new_list(client)['slug']}")
    assert page_without_colour.headers["content-security-policy"].count("'sha256-") == 1


@pytest.mark.parametrize(
    ("colour", "message"),
    [
        ("#ff9900", "is 1.9 instead of"),
        ("#767676", "is 4.0 instead of"),
        ("#ffffff", "is 1.1 instead of"),
        ("red", "#rrggbb"),
        ("#12345", "#rrggbb"),
        ("#1d4ed8;}</style>", "#rrggbb"),
        ("url(https://evil.example)", "#rrggbb"),
    ],
)
def test_list_rejects_a_colour_without_enough_contrast(
    client: httpx2.Client, colour: str, message: str
) -> None:
    mailing_list = new_list(client)
    error = problem(change_list(client, mailing_list["id"], colour=colour), 422, "list.colour")
    assert error["errors"][0]["field"] == "body.colour"
    assert message in error["detail"]
    assert data(client.get(f"/lists/{mailing_list['id']}"))["colour"] is None


@pytest.mark.parametrize("colour", ["#000000", "#00008b", "#6b21a8", "#9f2d16", "#0b6623"])
def test_accepted_list_colour_is_readable_in_light_and_dark_mode(colour: str) -> None:
    assert compute_contrast(colour, LIGHT_GROUND) >= MIN_CONTRAST
    assert compute_contrast("#ffffff", colour) >= MIN_CONTRAST
    dark_mode_colour = lighten_for_dark_mode(colour)
    assert compute_contrast(dark_mode_colour, DARK_GROUND) >= MIN_CONTRAST
    assert compute_contrast(DARK_INK, dark_mode_colour) >= MIN_CONTRAST
    for hover_colour, text_colour in (
        (colours.darken_colour(colour), "#ffffff"),
        (colours.lighten_colour(dark_mode_colour), DARK_INK),
    ):
        assert compute_contrast(hover_colour, text_colour) >= MIN_CONTRAST


def test_colour_contrast_matches_the_wcag_formula() -> None:
    assert compute_contrast("#000000", "#ffffff") == pytest.approx(21)
    assert compute_contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


def test_contrast_check_uses_the_background_colours_of_the_style_sheet() -> None:
    style = files("api.html").joinpath("style.css").read_text()
    light_style, dark_style = style.split("prefers-color-scheme: dark", 1)
    assert f"--paper: {LIGHT_GROUND};" in light_style
    assert f"--card: {DARK_GROUND};" in dark_style
    assert f"--paper: {DARK_INK};" in dark_style


def test_sign_up_page_shows_the_list_logo_and_its_policy_allows_the_image(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    hash_id = upload_picture(client)
    mailing_list = new_list(client, logo_hash_id=hash_id)
    page = stranger.get(f"/s/{mailing_list['slug']}")
    logo = re.search(r'<p class="logo"><img src="([^"]+)" alt=""></p>', page.text)
    assert logo
    [image_sources] = re.findall(r"img-src ([^;]+)", page.headers["content-security-policy"])
    assert any(logo[1].startswith(f"{source}/media/") for source in image_sources.split())
    assert stranger.get(logo[1]).headers["content-type"] == "image/webp"
    assert data(client.delete(f"/attachments/{hash_id}")) == 1
    page = stranger.get(f"/s/{mailing_list['slug']}")
    assert read_heading(page) == mailing_list["title"]
    assert "<img" not in page.text


def test_list_logo_must_be_an_unencrypted_image_of_the_same_owner(
    client: httpx2.Client, other_owner: httpx2.Client
) -> None:
    mailing_list = new_list(client)
    foreign_picture = upload_picture(other_owner)
    encrypted_picture = upload_picture(client, encrypted="1")
    for hash_id in (foreign_picture, encrypted_picture, "000000000000", "../../etc", ""):
        reply = change_list(client, mailing_list["id"], logo_hash_id=hash_id)
        if hash_id:
            problem(reply, 422, "list.logo")
    assert data(client.get(f"/lists/{mailing_list['id']}"))["logo_hash_id"] is None


def test_deleted_logo_does_not_prevent_other_changes_of_the_list(client: httpx2.Client) -> None:
    hash_id = upload_picture(client)
    mailing_list = new_list(client, logo_hash_id=hash_id)
    assert data(client.delete(f"/attachments/{hash_id}")) == 1
    changed_list = data(
        change_list(client, mailing_list["id"], logo_hash_id=hash_id, thanks_text="Thanks!")
    )
    assert (changed_list["logo_hash_id"], changed_list["thanks_text"]) == (hash_id, "Thanks!")


def test_sign_up_and_thanks_texts_are_shown_escaped_on_their_pages(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(
        client, sign_up_text=f"  {SIGN_UP_TEXT} <b> ", thanks_text="Until <tomorrow>."
    )
    page = stranger.get(f"/s/{mailing_list['slug']}")
    assert html.escape(f"{SIGN_UP_TEXT} <b>") in page.text
    form = {"email": new_address()}
    thanks_page = follow_redirect(
        stranger, stranger.post(f"/s/{mailing_list['slug']}", data=form, headers=BROWSER_HEADERS)
    )
    assert html.escape("Until <tomorrow>.") in thanks_page.text


def test_list_branding_texts_have_a_maximum_length(client: httpx2.Client, list_id: int) -> None:
    max_lengths = {"sign_up_text": 1000, "thanks_text": 1000, "confirmation_text": 200}
    for name, max_length in {**max_lengths, "sender_name": 40}.items():
        assert (
            data(change_list(client, list_id, **{name: "x" * max_length}))[name] == "x" * max_length
        )
        assert change_list(client, list_id, **{name: "x" * (max_length + 1)}).status_code == 422


@pytest.mark.parametrize("name", ['A" <b@c', "=?utf-8?q?x?=", "a, b", "a\r\nBcc: b", "Ada (x)"])
def test_sender_name_rejects_characters_that_could_change_mail_headers(
    client: httpx2.Client, list_id: int, name: str
) -> None:
    assert change_list(client, list_id, sender_name=name).status_code == 422


def test_confirmation_mail_shows_the_list_branding_and_names_the_installation(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(
        client,
        title="Tea",
        confirm_required=True,
        colour=BLUE,
        sender_name="Ada & Söhne",
        confirmation_text="Welcome\nto <Tea>!",
        logo_hash_id=upload_picture(client),
    )
    email = new_address()
    data(stranger.post(f"/subscriptions/{mailing_list['id']}", json={"email": email}))
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
    mailing_list = new_list(client, confirm_required=True, logo_hash_id=upload_picture(client))
    email = new_address()
    data(stranger.post(f"/subscriptions/{mailing_list['id']}", json={"email": email}))
    eventually(lambda: stack.mails(to=email), what="the confirmation mail")
    [confirmation] = stack.mails(to=email)
    confirm(stranger, confirmation)
    eventually(lambda: len(stack.mails(to=email)) == 2, what="the welcome mail")
    [mail] = [each for each in stack.mails(to=email) if "/confirm?" not in each["text"]]
    [logo_url] = re.findall(r'<img src="([^"]+)"', mail["html"])
    assert stranger.get(logo_url).headers["content-type"] == "image/webp"


def test_welcome_mail_quotes_the_thanks_text_and_links_to_the_site(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    thanks = "See you <soon>.\nYou can unsubscribe at any time:"
    site_url = "https://www.example.org"
    mailing_list = new_list(
        client, confirm_required=True, thanks_text=thanks, redirect_origins=[site_url]
    )
    email = new_address()
    data(stranger.post(f"/subscriptions/{mailing_list['id']}", json={"email": email}))
    [confirmation] = await_mails(stack, email)
    # Only people who confirmed their address get the owner's text.
    assert "soon" not in confirmation["text"] + confirmation["html"]
    confirm(stranger, confirmation)
    mail = next(each for each in await_mails(stack, email, 2) if each != confirmation)
    assert "> See you <soon>.\n> You can unsubscribe at any time:\n" in mail["text"]
    assert html.escape(thanks.splitlines()[0]) in mail["html"]
    assert f"Continue to example.org:\n{site_url}\n" in mail["text"]
    assert f'<a href="{site_url}"' in mail["html"]


def test_mails_and_pages_of_a_list_without_colour_have_the_same_colour(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, confirm_required=True)
    page = stranger.get(f"/s/{mailing_list['slug']}")
    [colour, *_] = re.findall(r"--accent: (#[0-9a-f]{6});", page.text)
    email = new_address()
    data(stranger.post(f"/subscriptions/{mailing_list['id']}", json={"email": email}))
    [mail] = await_mails(stack, email)
    assert f"background:{colour};" in mail["html"]
    assert f"border-bottom:2px solid {colour};" in mail["html"]


def test_owner_previews_list_pages_and_confirmation_mail(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    fields = {"colour": BLUE, "sender_name": "Ada", "confirmation_text": "Welcome!"}
    mailing_list = new_list(client, title="Tea", thanks_text="Until tomorrow.", **fields)
    path = f"/lists/{mailing_list['id']}/previews"
    sign_up = data(client.get(f"{path}/sign_up"))
    assert sign_up["html"] == stranger.get(f"/s/{mailing_list['slug']}").text
    assert "Until tomorrow." in data(client.get(f"{path}/thanks"))["html"]
    data(client.patch(f"/lists/{mailing_list['id']}", json={"confirm_required": True}))
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
    mailing_list = new_list(client, title="Tea", consent_wording="Old.")
    path = f"/lists/{mailing_list['id']}"
    list_before = data(client.get(f"/lists/{mailing_list['id']}"))
    changes = {"title": "Coffee", "colour": BLUE, "consent_wording": "New.", "sender_name": "B"}
    preview = data(client.post(f"{path}/previews/sign_up", json=changes))["html"]
    for text in ("Coffee", BLUE, "New."):
        assert text in preview
    mail = data(client.post(f"{path}/previews/confirmation_mail", json=changes))
    assert ("“Coffee”" in mail["text"], mail["sender_name"]) == (True, "B")
    assert data(client.get(path)) == list_before
    # The preview didn't store the new consent wording, so the next stored wording gets version 2.
    assert (
        data(change_list(client, mailing_list["id"], consent_wording="Other."))[
            "consent_wording_version"
        ]
        == 2
    )
    reply = client.post(f"{path}/previews/thanks", json={"colour": "#ffff00"})
    problem(reply, 422, "list.colour")
