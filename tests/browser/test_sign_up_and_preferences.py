"""Browser tests of the pages for a list's readers: sign-up, preferences and embedded forms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx2
import pytest
from playwright.sync_api import Page, expect

from devstack.harness.stack import Stack
from tests.support.browser.accessibility import OpenPage, require_no_violations, require_page
from tests.support.browser.readers import TITLE, WORDING, mailed_link, make_list
from tests.support.documents import markdown
from tests.support.http.replies import data
from tests.support.http.servers import QuietHandler, http_server, running_server
from tests.support.lists.people_on_lists import Subscriber, subscribe
from tests.support.lists.subscribers import new_address, require_member


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.tier("browser"))],
    ids=["without scripts", "with scripts"],
)
def list_page(request: pytest.FixtureRequest, open_empty_page: OpenPage) -> Page:
    """An empty browser page. Each test with this page runs twice: with JavaScript and without."""
    return open_empty_page(scripts=request.param)


@dataclass
class Site:
    """A website that serves the same page at every path except /thanks."""

    url: str
    page: str = ""


@pytest.fixture
def owner_site() -> Iterator[Site]:
    """A website of a list's owner, on another host than the API."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            thanks_page = "<!doctype html><html lang=en><title>Thanks</title><h1>Thanks</h1>"
            page = thanks_page if self.path.startswith("/thanks") else site.page
            self.reply(200, page.encode(), {"Content-Type": "text/html; charset=utf-8"})

    with running_server(http_server(Handler)) as url:
        # Give the website another host than the API, so that the sign-up form is cross-site.
        site = Site(url.replace("127.0.0.1", "localhost"))
        yield site


@pytest.fixture
def german_page(open_empty_page: OpenPage) -> Page:
    """An empty page in a browser whose preferred language is German."""
    return open_empty_page(locale="de-DE")


def sign_up_url(stack: Stack, client: httpx2.Client, list_id: int) -> str:
    return f"{stack.api_url}/s/{data(client.get(f'/lists/{list_id}'))['slug']}"


def require_heading(page: Page, heading: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)


def test_sign_up_page_keeps_valid_answers_while_an_invalid_one_is_corrected(
    stack: Stack, client: httpx2.Client, list_page: Page
) -> None:
    list_id = make_list(client, thanks_text="The next letter comes tomorrow.")
    list_page.goto(sign_up_url(stack, client, list_id))
    require_heading(list_page, TITLE)
    expect(list_page.get_by_text(WORDING)).to_be_visible()
    list_page.get_by_label("E-mail address").fill("ada@example.com")
    list_page.get_by_label("Name").fill("Ada")
    list_page.get_by_label("Visits").fill("many")
    list_page.get_by_label("Born").fill("1990-02-01")
    list_page.get_by_label("News").check()
    list_page.get_by_label("Tea").select_option("Black")
    list_page.get_by_role("button", name="Subscribe").click()
    require_heading(list_page, "Not subscribed yet")
    expect(list_page.get_by_label("Visits")).to_be_focused()
    expect(list_page.get_by_label("Visits")).to_have_accessible_description(
        "Please enter a number."
    )
    expect(list_page.get_by_label("Visits")).to_have_value("many")
    expect(list_page.get_by_label("Name")).to_have_value("Ada")
    expect(list_page.get_by_label("Born")).to_have_value("1990-02-01")
    expect(list_page.get_by_label("News")).to_be_checked()
    expect(list_page.get_by_label("Tea")).to_have_value("Black")
    list_page.get_by_label("Visits").fill("2")
    list_page.get_by_role("button", name="Subscribe").click()
    require_heading(list_page, "Thank you")
    expect(list_page.get_by_text("The next letter comes tomorrow.")).to_be_visible()
    member = require_member(client, list_id, "ada@example.com")
    assert member["name"] == "Ada"
    assert member["fields"] == {"visits": 2, "born": "1990-02-01", "news": True, "tea": "Black"}


@pytest.mark.tier("fast", "browser")
def test_sign_up_page_uses_german_for_german_browsers(
    stack: Stack, client: httpx2.Client, german_page: Page
) -> None:
    list_id = make_list(client)
    german_page.goto(sign_up_url(stack, client, list_id))
    require_page(german_page, TITLE)
    expect(german_page.locator("html")).to_have_attribute("lang", "de")
    german_page.get_by_label("E-Mail-Adresse").fill("ada@example")
    german_page.get_by_role("button", name="Anmelden").click()
    require_page(german_page, "Noch nicht angemeldet")
    german_page.get_by_label("E-Mail-Adresse").fill("ada@example.com")
    german_page.get_by_role("button", name="Anmelden").click()
    require_page(german_page, "Vielen Dank")


def test_reader_corrects_the_address_and_confirming_leads_to_the_site_of_the_owner(
    stack: Stack, client: httpx2.Client, owner_site: Site, list_page: Page
) -> None:
    list_id = make_list(
        client,
        confirm_required=True,
        redirect_origins=[owner_site.url],
        confirmed_redirect=f"{owner_site.url}/thanks",
    )
    email = new_address()
    list_page.goto(sign_up_url(stack, client, list_id))
    list_page.get_by_label("E-mail address").fill(f"typo.{email}")
    list_page.get_by_label("Tea").select_option("Black")
    list_page.get_by_role("button", name="Subscribe").click()
    require_page(list_page, "Check your e\N{NON-BREAKING HYPHEN}mail")
    expect(list_page.get_by_text(f"typo.{email}")).to_be_visible()
    list_page.get_by_role("button", name="Send again").click()
    expect(list_page.get_by_role("status")).to_contain_text("Please wait.")
    list_page.get_by_role("button", name="Correct it").click()
    require_page(list_page, TITLE)
    expect(list_page.get_by_label("E-mail address")).to_have_value(f"typo.{email}")
    expect(list_page.get_by_label("Tea")).to_have_value("Black")
    list_page.get_by_label("E-mail address").fill(email)
    list_page.get_by_role("button", name="Subscribe").click()
    require_page(list_page, "Check your e\N{NON-BREAKING HYPHEN}mail")
    expect(list_page.get_by_text(email, exact=True)).to_be_visible()
    user_id = require_member(client, list_id, email)["user_id"]
    list_page.goto(mailed_link(Subscriber(stack, list_id, user_id, email), "/confirm"))
    list_page.get_by_role("button", name="Confirm my subscription").click()
    require_heading(list_page, "Thanks")
    assert list_page.url == f"{owner_site.url}/thanks"


def pasted_form(client: httpx2.Client, list_id: int) -> str:
    snippet: str = data(client.get(f"/lists/{list_id}/embed"))["html"]
    redirect_input = (
        '<input type="hidden" name="redirect_url" value="https://www.example.com/thanks">'
    )
    return snippet.replace("</form>", f"{redirect_input}</form>")


def documented_form(client: httpx2.Client, list_id: int) -> str:
    """Return the sign-up form from docs/subscribers.md with the URL of the given list."""
    [example] = [
        block.text
        for block in markdown.blocks(markdown.ROOT / "docs" / "subscribers.md")
        if block.language == "html"
    ]
    action = "https://pressroom.example.com/subscriptions/4711"
    assert action in example
    return example.replace(action, f"{client.base_url}/subscriptions/{list_id}")


@pytest.mark.parametrize("form", [pasted_form, documented_form])
def test_embedded_form_returns_to_its_site_after_a_wrong_address_is_corrected(
    client: httpx2.Client,
    owner_site: Site,
    list_page: Page,
    form: Callable[[httpx2.Client, int], str],
) -> None:
    list_id = make_list(client, redirect_origins=[owner_site.url])
    form_html = form(client, list_id).replace(
        "https://www.example.com/thanks", f"{owner_site.url}/thanks"
    )
    owner_site.page = f"<!doctype html><html lang=en><title>A site</title>{form_html}"
    list_page.goto(owner_site.url)
    # Browsers accept `ada@example` as an e-mail address, but Pressroom rejects it.
    list_page.get_by_label("E-mail address").fill("ada@example")
    list_page.get_by_role("button", name="Subscribe").click()
    # Visitors correct a rejected address on Pressroom's own page before they return to the website.
    require_heading(list_page, "Not subscribed yet")
    expect(list_page.get_by_role("alert")).to_be_visible()
    expect(list_page.get_by_label("E-mail address")).to_have_value("ada@example")
    list_page.get_by_label("E-mail address").fill("ada@example.com")
    list_page.get_by_role("button", name="Subscribe").click()
    require_heading(list_page, "Thanks")
    assert list_page.url == f"{owner_site.url}/thanks"
    assert require_member(client, list_id, "ada@example.com")["source"] == "form"


@pytest.mark.parametrize(
    ("scripts", "origin"),
    [
        (
            True,
            {
                "utm_source": "fair",
                "utm_campaign": "tea 2026",
                "referrer": "news.example.com",
                "landing": "/tea/join",
            },
        ),
        # Without scripts, only the page's host is known, from the browser's ``Referer`` header.
        (False, {"referrer": "localhost"}),
    ],
)
def test_embedded_form_sends_the_campaign_and_the_pages_of_the_visit(
    client: httpx2.Client,
    owner_site: Site,
    open_empty_page: OpenPage,
    scripts: bool,
    origin: dict[str, str],
) -> None:
    page = open_empty_page(scripts=scripts)
    list_id = make_list(client)
    snippet = data(client.get(f"/lists/{list_id}/embed", params={"origin": "1"}))["html"]
    owner_site.page = f"<!doctype html><html lang=en><title>A site</title>{snippet}"
    page.goto(
        f"{owner_site.url}/tea/join?utm_source=Fair&utm_campaign=Tea%202026&other=1",
        referer="https://news.example.com/item?id=1",
    )
    email = new_address()
    page.get_by_label("E-mail address").fill(email)
    page.get_by_role("button", name="Subscribe").click()
    require_heading(page, "Thank you")
    member = require_member(client, list_id, email)
    stored_origin = {name: value for name, value in member["origin"].items() if value is not None}
    assert stored_origin == origin


def test_reader_can_change_preferences_download_data_and_be_erased(
    stack: Stack, client: httpx2.Client, list_page: Page
) -> None:
    reader = subscribe(stack, make_list(client))
    list_page.goto(reader.unsubscribe_url)
    list_page.get_by_role("button", name="E\N{NON-BREAKING HYPHEN}mail me the link").click()
    require_heading(list_page, "Check your e\N{NON-BREAKING HYPHEN}mail")
    list_page.goto(mailed_link(reader, "/preferences/open"))
    require_heading(list_page, "Your subscriptions")
    list_page.get_by_role("button", name="Open my subscriptions").click()
    expect(list_page.get_by_role("heading", level=2, name=TITLE)).to_be_visible()
    list_page.get_by_role("switch", name="E\N{NON-BREAKING HYPHEN}mails").uncheck()
    list_page.get_by_label("Name", exact=True).fill("Ada")
    list_page.get_by_label("News").uncheck()
    list_page.get_by_role("button", name="Save").click()
    require_heading(list_page, "Your subscriptions")
    expect(list_page.get_by_role("status")).to_have_text("Your changes were saved.")
    expect(list_page.get_by_role("switch", name=TITLE)).to_be_checked()
    assert reader.read_status() == ("active", False)
    list_page.get_by_role("link", name="View your data").click()
    require_heading(list_page, "Your data")
    expect(list_page.get_by_text("Ada", exact=True)).to_be_visible()
    list_page.get_by_role("link", name="Back to your subscriptions").click()
    with list_page.expect_download() as download:
        list_page.get_by_role("link", name="Download your data (JSON)").click()
    assert download.value.suggested_filename == "what-is-known.json"
    list_page.get_by_role("link", name="Delete my data").click()
    require_heading(list_page, "Delete my data")
    list_page.get_by_role("button", name="Delete all my data").click()
    require_heading(list_page, "Your data is being deleted")


@pytest.mark.tier("browser")
def test_confirmation_mail_preview_is_translated_and_has_readable_contrast(
    client: httpx2.Client, open_page: OpenPage
) -> None:
    list_id = make_list(client, confirmation_text="Welcome to The Morning Letter!")
    for language, button_text in (
        ("en", "Confirm my subscription"),
        ("de", "Meine Anmeldung bestätigen"),
    ):
        params = {"language": language}
        preview = data(client.get(f"/lists/{list_id}/previews/confirmation_mail", params=params))
        page = open_page("about:blank")
        page.set_content(preview["html"])
        expect(page.get_by_role("link", name=button_text)).to_be_visible()
        expect(page.get_by_text("“Welcome to The Morning Letter!”")).to_be_visible()
        # Check a mail only for contrast and link names, because mails need no page landmarks.
        require_no_violations(page, "color-contrast", "link-name")
