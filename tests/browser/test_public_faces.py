"""The public face of a list, in a real browser: its page, preferences, a form on another site."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.foreign_site import Site
from tests.browser.test_unsubscribe import LONG_TITLE, NARROW, mailed_link, require_accessible
from tests.contract.attributes import new_field
from tests.contract.replies import data
from tests.contract.subscribers import known_member
from tests.stack import Stack
from tests.subscribers import Subscriber, new_list, subscribe

Open = Callable[..., Page]
Keep = Callable[[Page, str], Path]
TITLE = "The Morning Letter"
WORDING = "I want The Morning Letter by e-mail. I can leave at any time."


@pytest.fixture(params=[True, False], ids=["with scripts", "without scripts"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    yield from opened(browser, java_script_enabled=request.param)


@pytest.fixture
def german(browser: Browser) -> Iterator[Page]:
    yield from opened(browser, locale="de-DE")


def opened(browser: Browser, **options: object) -> Iterator[Page]:
    """A page of a new browser; the test fails if what is opened in it logs an error."""
    context: BrowserContext = browser.new_context(**options)  # type: ignore[arg-type]
    found = context.new_page()
    complaints: list[str] = []
    found.on("console", lambda message: complaints.append(message.text))
    yield found
    context.close()
    # An answer 422 is an error to the browser's console, as a site without an icon is.
    assert [each for each in complaints if "422" not in each and "favicon" not in each] == []


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site()
    yield running
    running.close()


def sign_up_url(stack: Stack, client: httpx.Client, list_id: int) -> str:
    return f"{stack.api_url}/s/{data(client.get(f'/lists/{list_id}'))['slug']}"


def shows(page: Page, heading: str) -> None:
    """It shows this, and anybody can read and use it."""
    looked_at(page, heading)
    require_accessible(page)


def looked_at(page: Page, heading: str) -> None:
    """As ``shows``, of a page that may run no scripts, axe's own neither."""
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)


def make_list(client: httpx.Client, **fields: object) -> int:
    """With an open field of each type, a wording, a colour and a logo."""
    for key, kind in (("visits", "number"), ("born", "date"), ("news", "boolean")):
        new_field(client, key, kind, public=True)
    new_field(client, "tea", "choice", public=True, choices=["Green", "Black"])
    content = io.BytesIO()
    Image.new("RGB", (240, 80), "#1d4ed8").save(content, "PNG")
    file = {"file": ("logo.png", content.getvalue(), "image/png")}
    logo = data(client.post("/attachments", files=file))["hash_id"]
    look = {"colour": "#1d4ed8", "logo_hash_id": logo, "sign_up_text": "One letter each morning."}
    return new_list(client, TITLE, consent_wording=WORDING, **{**look, **fields})


def fill(page: Page, email: str) -> None:
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Name").fill("Ada")
    page.get_by_label("Visits").fill("many")
    page.get_by_label("Born").fill("1990-02-01")
    page.get_by_label("News").check()
    page.get_by_label("Tea").select_option("Black")


# -- the page of a list ---------------------------------------------------------------------------


def test_a_person_corrects_an_answer_and_is_subscribed(
    stack: Stack, client: httpx.Client, page: Page, keep: Keep
) -> None:
    list_id = make_list(client, thanks_text="The next letter comes tomorrow.")
    page.goto(sign_up_url(stack, client, list_id))
    looked_at(page, "Subscribe")
    expect(page.get_by_text(WORDING)).to_be_visible()
    keep(page, "sign-up")
    fill(page, "ada@example.com")
    page.get_by_role("button", name="Subscribe").click()
    looked_at(page, "Not subscribed yet")
    expect(page.get_by_label("Visits")).to_have_accessible_description("Please write a number.")
    expect(page.get_by_label("Visits")).to_have_value("many")
    expect(page.get_by_label("Name")).to_have_value("Ada")
    expect(page.get_by_label("Born")).to_have_value("1990-02-01")
    expect(page.get_by_label("News")).to_be_checked()
    expect(page.get_by_label("Tea")).to_have_value("Black")
    keep(page, "sign-up-wrong")
    page.get_by_label("Visits").fill("2")
    page.get_by_role("button", name="Subscribe").click()
    looked_at(page, "Thank you")
    expect(page.get_by_text("The next letter comes tomorrow.")).to_be_visible()
    keep(page, "sign-up-done")
    found = known_member(client, list_id, "ada@example.com")
    assert found["name"] == "Ada"
    assert found["fields"] == {"visits": 2, "born": "1990-02-01", "news": True, "tea": "Black"}


def test_the_keyboard_alone_is_enough(stack: Stack, client: httpx.Client, open_page: Open) -> None:
    list_id = new_list(client, TITLE)
    page = open_page(sign_up_url(stack, client, list_id))
    for typed in ("ada@example.com", "Ada"):
        page.keyboard.press("Tab")
        page.keyboard.type(typed)
    page.keyboard.press("Enter")
    shows(page, "Thank you")
    assert known_member(client, list_id, "ada@example.com")["name"] == "Ada"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_narrow_window_and_can_be_read_in_the_lists_colour(
    stack: Stack, client: httpx.Client, open_page: Open, keep: Keep, scheme: str
) -> None:
    list_id = make_list(client)
    data(client.patch(f"/lists/{list_id}", json={"title": LONG_TITLE}))
    url = sign_up_url(stack, client, list_id)
    page = open_page("about:blank")
    page.set_viewport_size({"width": NARROW, "height": 640})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for name, path in (
        ("sign-up", url),
        ("embed", f"{url}/embed"),
        ("ask-preferences", f"{stack.api_url}/preferences/ask?list={list_id}"),
        ("asked-preferences", f"{stack.api_url}/preferences/ask?sent=yes"),
    ):
        page.goto(path)
        # axe computes the contrast of each text, also of the list's own colour.
        require_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW, name
        keep(page, f"{name}-narrow-{scheme}")


def test_a_german_reads_german(
    stack: Stack, client: httpx.Client, german: Page, keep: Keep
) -> None:
    list_id = make_list(client)
    german.goto(sign_up_url(stack, client, list_id))
    shows(german, "Anmelden")
    expect(german.locator("html")).to_have_attribute("lang", "de")
    keep(german, "sign-up-german")
    german.get_by_label("E-Mail-Adresse").fill("ada@example")
    german.get_by_role("button", name="Anmelden").click()
    shows(german, "Noch nicht angemeldet")
    german.get_by_label("E-Mail-Adresse").fill("ada@example.com")
    german.get_by_role("button", name="Anmelden").click()
    shows(german, "Vielen Dank")


# -- the form on another site ---------------------------------------------------------------------


def test_the_pasted_form_subscribes_on_another_site_and_leads_back(
    stack: Stack, client: httpx.Client, site: Site, page: Page, keep: Keep
) -> None:
    list_id = make_list(client, redirect_origins=[site.url])
    page.goto(f"{sign_up_url(stack, client, list_id)}/embed")
    keep(page, "embed")
    snippet = page.get_by_label("HTML").input_value()
    assert snippet == data(client.get(f"/lists/{list_id}/embed"))["html"]
    back = f'<input type="hidden" name="redirect_url" value="{site.url}/thanks">'
    pasted = snippet.replace("</form>", f"{back}</form>")
    site.page = f"<!doctype html><html lang=en><title>A site</title>{pasted}"
    page.goto(site.url)
    fill(page, "ada@example.com")
    keep(page, "embedded-form")
    page.get_by_role("button", name="Subscribe").click()
    # What is to be corrected is corrected on a page of ours, which leads back too.
    looked_at(page, "Not subscribed yet")
    page.get_by_label("Visits").fill("2")
    page.get_by_role("button", name="Subscribe").click()
    looked_at(page, "Thanks")
    assert page.url == f"{site.url}/thanks"
    assert known_member(client, list_id, "ada@example.com")["fields"]["tea"] == "Black"


# -- preferences ----------------------------------------------------------------------------------


def test_a_reader_changes_what_they_get_reads_what_is_known_and_is_erased(
    stack: Stack, client: httpx.Client, page: Page, keep: Keep
) -> None:
    reader = subscribe(stack, make_list(client))
    page.goto(reader.unsubscribe_url)
    page.get_by_role("button", name="Mail me the link").click()
    looked_at(page, "Look into your mail")
    keep(page, "preferences-asked")
    page.goto(mailed_link(reader, "/preferences/open"))
    looked_at(page, "Your subscriptions")
    keep(page, "preferences-link")
    page.get_by_role("button", name="Open my subscriptions").click()
    expect(page.get_by_role("heading", level=2, name=TITLE)).to_be_visible()
    keep(page, "preferences")
    page.get_by_role("button", name="Only stop the e-mails").click()
    assert_eventually_stands(page, reader, "Send me e-mails again", ("active", False))
    page.get_by_role("link", name="Your name and answers").click()
    looked_at(page, "Your name and answers")
    page.get_by_label("Name").fill("Ada")
    page.get_by_label("News").select_option("No")
    keep(page, "preferences-answers")
    page.get_by_role("button", name="Save").click()
    looked_at(page, "Your subscriptions")
    page.get_by_role("link", name="Read it").click()
    looked_at(page, "What is known of you")
    expect(page.get_by_text("Ada", exact=True)).to_be_visible()
    keep(page, "preferences-data")
    page.get_by_role("link", name="Back to your subscriptions").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Save it as a file (JSON)").click()
    assert download.value.suggested_filename == "what-is-known.json"
    page.get_by_role("link", name="Have it erased").click()
    looked_at(page, "Have it erased")
    keep(page, "preferences-erase")
    page.get_by_role("button", name="Erase all of it").click()
    looked_at(page, "You are erased")
    keep(page, "preferences-erased")


def assert_eventually_stands(
    page: Page, reader: Subscriber, button: str, stands: tuple[str, bool]
) -> None:
    expect(page.get_by_role("button", name=button)).to_be_visible()
    assert reader.stands() == stands


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_preferences_are_accessible_and_fit_a_narrow_window(
    stack: Stack, client: httpx.Client, open_page: Open, keep: Keep, scheme: str
) -> None:
    list_id = make_list(client)
    data(client.patch(f"/lists/{list_id}", json={"title": LONG_TITLE}))
    reader = subscribe(stack, list_id)
    page = open_page(reader.unsubscribe_url)
    page.set_viewport_size({"width": NARROW, "height": 640})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.get_by_role("button", name="Mail me the link").click()
    page.goto(mailed_link(reader, "/preferences/open"))
    require_accessible(page)
    page.get_by_role("button", name="Open my subscriptions").click()
    for name, path in (
        ("preferences", ""),
        ("preferences-answers", f"/answers?list={list_id}"),
        ("preferences-data", "/data"),
        ("preferences-erase", "/erase"),
    ):
        page.goto(f"{stack.api_url}/preferences{path}")
        require_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW, name
        keep(page, f"{name}-narrow-{scheme}")
    page.goto(f"{stack.api_url}/preferences")
    page.get_by_role("button", name="I am done").click()
    shows(page, "That was all")
    page.goto(f"{stack.api_url}/preferences")
    shows(page, "Please ask for a new link")


def test_preferences_are_german_for_a_german(
    stack: Stack, client: httpx.Client, german: Page, keep: Keep
) -> None:
    reader = subscribe(stack, make_list(client))
    german.goto(reader.unsubscribe_url)
    shows(german, "Sie sind angemeldet")
    keep(german, "unsubscribe-german")
    german.get_by_role("button", name="Den Link zuschicken").click()
    shows(german, "Sehen Sie in Ihre E-Mails")
    german.goto(mailed_link(reader, "/preferences/open"))
    german.get_by_role("button", name="Meine Abonnements öffnen").click()
    shows(german, "Ihre Abonnements")
    keep(german, "preferences-german")
    german.get_by_role("link", name="Lesen").click()
    shows(german, "Was über Sie bekannt ist")
    keep(german, "preferences-data-german")


def test_a_person_says_why_they_leave(
    stack: Stack, client: httpx.Client, page: Page, keep: Keep
) -> None:
    reader = subscribe(stack, make_list(client))
    page.goto(reader.unsubscribe_url)
    page.get_by_text("Would you say why?").click()
    page.get_by_label("It comes too often.").check()
    keep(page, "unsubscribe-why")
    page.get_by_role("button", name="Unsubscribe").click()
    looked_at(page, "You have unsubscribed")
    path = f"/lists/{reader.list_id}/members/{reader.user_id}/history"
    assert data(client.get(path))["items"][0]["reason"] == "too_many"


# -- mails ----------------------------------------------------------------------------------------


def test_the_mail_looks_as_its_owner_saw_it_beforehand(
    client: httpx.Client, open_page: Open, keep: Keep
) -> None:
    list_id = make_list(client, confirmation_text="Welcome to The Morning Letter!")
    for language, words in (
        ("en", "Confirm my subscription"),
        ("de", "Meine Anmeldung bestätigen"),
    ):
        params = {"language": language}
        shown = data(client.get(f"/lists/{list_id}/previews/confirmation_mail", params=params))
        page = open_page("about:blank")
        page.set_content(shown["html"])
        expect(page.get_by_role("link", name=words)).to_be_visible()
        expect(page.get_by_text("“Welcome to The Morning Letter!”")).to_be_visible()
        # A mail has no landmarks; mail programs take its parts into pages of theirs.
        seen = Axe().run(page, options={"runOnly": ["color-contrast", "link-name"]})
        assert seen.violations_count == 0, seen.generate_report()
        keep(page, f"confirmation-mail-{language}")
