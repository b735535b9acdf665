"""Tests of the console in a browser."""

import re

import httpx2
import pytest
from playwright.sync_api import FilePayload, Page, Route, expect

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.subscriptions.members import locks
from tests.support.browser.accessibility import (
    IS_THOROUGH,
    LONG_WORD,
    NARROW_WIDTH,
    OpenPage,
    find_hidden_entries,
    find_protruding_elements,
    fits_width,
    require_accessible,
)
from tests.support.browser.consoles import log_in_browser
from tests.support.composer.composing import make_unique_post
from tests.support.http.replies import data, send
from tests.support.images.pictures import encoded, noise
from tests.support.imports.bulk import (
    active_members,
    build_address_file,
    build_addresses,
    build_csv,
    import_members_file,
    upload,
)
from tests.support.lists.subscribers import new_address, new_list, subscribe


@pytest.fixture
def console_page(page: Page, stack: Stack, owner: Owner) -> Page:
    """A browser page in which the owner is logged in to the console."""
    log_in_browser(page, stack, owner.user_id)
    return page


@pytest.mark.tier("fast", "browser")
def test_owner_can_create_list_find_members_and_undo_bulk_action(
    stack: Stack, console_page: Page, owner: Owner, client: httpx2.Client
) -> None:
    console_page.goto(f"{stack.api_url}/account")
    console_page.get_by_role("link", name="Pressroom").click()
    console_page.get_by_role("link", name="Create a list").click()
    console_page.get_by_role("textbox", name="Title").fill("The Daily Démo!")
    address = console_page.get_by_label("Web address")
    expect(address).to_have_value("the-daily-demo")
    address.fill("Not a slug")
    console_page.get_by_role("textbox", name="Title").fill("The Daily Demo")
    expect(address).to_have_value("Not a slug")
    console_page.get_by_role("button", name="Create list").click()
    expect(address).to_have_attribute("aria-invalid", "true")
    expect(console_page.get_by_role("textbox", name="Title")).to_have_value("The Daily Demo")
    address.fill(f"daily-{owner.user_id}")
    console_page.get_by_role("button", name="Create list").click()
    expect(console_page.get_by_role("heading", level=1)).to_have_text("The Daily Demo")
    notice = console_page.get_by_role("status").filter(has_text="was created.")
    expect(notice).to_be_visible()
    [mailing_list] = data(client.get("/lists"))["items"]
    import_members_file(
        client, mailing_list["id"], build_address_file("ada@example.com", "bob@example.com")
    )

    console_page.get_by_role("link", name="Members").click()
    expect(console_page.get_by_role("link", name="bob@example.com")).to_be_visible()
    console_page.get_by_label("Select all on this page").check()
    expect(console_page.get_by_label("Select bob@example.com")).to_be_checked()
    expect(console_page.get_by_label("Select ada@example.com")).to_be_checked()
    console_page.get_by_label("Address or name").press_sequentially("ada")
    expect(console_page.get_by_role("link", name="bob@example.com")).to_have_count(0)
    expect(console_page.get_by_role("link", name="ada@example.com")).to_be_visible()
    assert "q=ada" in console_page.url

    console_page.get_by_role("link", name="ada@example.com").click()
    console_page.get_by_label("Name", exact=True).fill("Ada")
    console_page.get_by_label("Tags").fill("vip")
    console_page.get_by_role("button", name="Save").click()
    expect(console_page.locator(".notice")).to_have_text("The changes were saved.")

    console_page.get_by_role("link", name="Members").first.click()
    console_page.get_by_label("Select ada@example.com").check()
    expect(console_page.get_by_role("button", name="Bulk action on all")).to_have_count(0)
    expect(console_page.get_by_text("1 selected", exact=True)).to_be_visible()
    console_page.get_by_label("Select ada@example.com").uncheck()
    console_page.get_by_role("button", name="Bulk action on all 2").click()
    console_page.get_by_role("list", name="Existing tags").get_by_role("button", name="vip").click()
    expect(console_page.get_by_label("Tag", exact=True)).to_have_value("vip")
    console_page.get_by_label("Turn mail off").check()
    console_page.get_by_role("button", name="Apply to 2 members").click()
    state = console_page.locator("#state").get_by_role("status")
    expect(state.filter(has_text="Done: 2 of 2 members changed")).to_be_visible()
    console_page.get_by_role("button", name="Undo bulk action").click()
    expect(state.filter(has_text="Undone: 2 members restored")).to_be_visible()
    ada = data(client.get(f"/lists/{mailing_list['id']}/members/ada@example.com"))
    assert (ada["name"], ada["tags"], ada["email_enabled"]) == ("Ada", ["vip"], True)


@pytest.mark.tier("browser")
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_ticked_members_raise_a_bar_with_bulk_actions_with_and_without_scripts(
    stack: Stack, open_empty_page: OpenPage, owner: Owner, client: httpx2.Client, scripts: bool
) -> None:
    page = open_empty_page(scripts=scripts)
    log_in_browser(page, stack, owner.user_id)
    list_id = new_list(client)["id"]
    import_members_file(client, list_id, build_address_file("ada@example.com", "bob@example.com"))
    page.goto(f"{stack.api_url}/console/lists/{list_id}/members")
    for_all = page.get_by_role("button", name="Bulk action on all 2")
    mail_off = page.get_by_role("button", name="Mail off")
    expect(for_all).to_be_visible()
    expect(mail_off).to_have_count(0)
    page.get_by_label("Select ada@example.com").check()
    expect(for_all).to_have_count(0)
    if scripts:
        expect(page.get_by_text("1 selected", exact=True)).to_be_visible()
        require_accessible(page)
    mail_off.click()
    expect(page.get_by_label("Turn mail off")).to_be_checked()
    expect(page.get_by_role("button", name="Apply to 1 member")).to_be_visible()


@pytest.mark.tier("browser")
def test_console_copies_the_address_of_a_member(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    import_members_file(client, list_id, build_address_file("ada@example.com"))
    console_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    console_page.goto(f"{stack.api_url}/console/lists/{list_id}/members")
    console_page.get_by_role("link", name="ada@example.com").click()
    console_page.get_by_role("button", name="Copy: address").click()
    expect(console_page.get_by_role("status")).to_have_text("Copied: address")
    assert console_page.evaluate("navigator.clipboard.readText()") == "ada@example.com"


@pytest.mark.tier("browser")
def test_console_menus_show_the_current_entry_after_the_window_gets_narrower(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    for path in ("developers", f"lists/{list_id}/settings", f"lists/{list_id}"):
        console_page.goto(f"{stack.api_url}/console/{path}")
        for width in (1280, 800, NARROW_WIDTH, 480):
            console_page.set_viewport_size({"width": width, "height": 640})
            eventually(
                lambda: find_hidden_entries(console_page) == [], what=f"the entry at {width} px"
            )


@pytest.mark.tier("browser")
def test_chart_shows_the_numbers_of_a_day_after_a_tap_or_an_arrow_key(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    data(subscribe(client, list_id, new_address()))
    console_page.set_viewport_size({"width": NARROW_WIDTH, "height": 640})
    console_page.goto(f"{stack.api_url}/console/lists/{list_id}?figure=joined")
    chart = console_page.get_by_role("slider", name="30 days")
    numbers = console_page.locator("figure > p")
    expect(numbers).to_have_text("Select a period in the chart to see its numbers.")
    chart.focus()
    console_page.keyboard.press("ArrowLeft")
    expect(numbers).to_have_text(re.compile(": 1 joined, 0 left$"))
    today_text = numbers.inner_text()
    expect(chart).to_have_attribute("aria-valuetext", today_text)
    console_page.keyboard.press("ArrowLeft")
    expect(numbers).to_have_text(re.compile(": 0 joined, 0 left$"))
    console_page.keyboard.press("Home")
    expect(chart).to_have_attribute("aria-valuenow", "0")
    box = chart.bounding_box()
    assert box
    chart.click(position={"x": box["width"] - 2, "y": box["height"] / 2})
    expect(numbers).to_have_text(today_text)
    if IS_THOROUGH:
        require_accessible(console_page)


@pytest.mark.tier("browser")
def test_console_finder_opens_by_shortcut_and_leads_to_pages_lists_and_members(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client, title="Letters to find")["id"]
    import_members_file(client, list_id, build_address_file("letty@example.com"))
    console_page.goto(f"{stack.api_url}/console")
    for keys in ("Control+k", "Meta+k"):
        console_page.keyboard.press(keys)
        dialog = console_page.get_by_role("dialog", name="Find pages, lists and members")
        expect(dialog).to_be_visible()
        expect(console_page.locator(":focus")).to_have_attribute("type", "search")
        console_page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
    console_page.get_by_role("link", name="Find", exact=True).click()
    console_page.keyboard.type("lett")
    expect(dialog.get_by_role("link")).to_have_text(["Letters to find", "letty@example.com"])
    if IS_THOROUGH:
        require_accessible(console_page)
    console_page.keyboard.press("ArrowDown")
    console_page.keyboard.press("ArrowDown")
    console_page.keyboard.press("Enter")
    expect(console_page.get_by_role("heading", level=1)).to_have_text("letty@example.com")
    console_page.keyboard.press("Control+k")
    console_page.keyboard.type("letty")
    expect(console_page.get_by_role("dialog").get_by_role("link")).to_have_count(1)
    # Enter opens no result of an earlier text.
    console_page.keyboard.press("Control+a")
    console_page.keyboard.type("letters")
    console_page.keyboard.press("Enter")
    expect(console_page).to_have_title("Letters to find – Pressroom")


# Presses Ctrl-K as soon as the page has its heading.
PRESS_SHORTCUT = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("h1")) return;
  observer.disconnect();
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true }));
}).observe(document, { childList: true, subtree: true });
"""


@pytest.mark.tier("browser")
def test_console_finder_opens_by_shortcut_before_the_rest_of_the_page_has_loaded(
    stack: Stack, console_page: Page
) -> None:
    console_page.add_init_script(PRESS_SHORTCUT)
    console_page.goto(f"{stack.api_url}/console")
    expect(console_page.get_by_role("dialog")).to_be_visible()
    expect(console_page.locator(":focus")).to_have_attribute("type", "search")


def test_console_search_after_session_end_opens_login_with_return_path(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client, title="Letters")["id"]
    console_page.goto(f"{stack.api_url}/console/lists/{list_id}/members")
    console_page.context.clear_cookies()
    console_page.get_by_label("Address or name").press_sequentially("x")
    expect(console_page.get_by_role("heading", level=1)).to_have_text("Log in")
    assert f"next=%2Fconsole%2Flists%2F{list_id}%2Fmembers" in console_page.url


@pytest.mark.tier("browser")
def test_composer_page_writes_metadata_for_a_pasted_post_and_adds_a_photo(
    stack: Stack, console_page: Page
) -> None:
    post = make_unique_post()
    console_page.goto(f"{stack.api_url}/console")
    console_page.get_by_role("link", name="Composer").click()
    # If the title and the post are missing, the page shows only one error and puts the focus into
    # the field of the post.
    console_page.get_by_role("button", name="Generate all").click()
    expect(console_page.locator(".wrong")).to_have_text("Enter a title or paste a post.")
    expect(console_page.get_by_label("Post", exact=True)).to_be_focused()
    console_page.get_by_label("Title", exact=True).fill(post.title)
    # Pressing Enter in a field doesn't start the composer, because each run of the composer may
    # cost credits.
    console_page.get_by_label("Title", exact=True).press("Enter")
    expect(console_page.get_by_label("Title", exact=True)).to_have_value(post.title)
    expect(console_page.get_by_text("Written by")).to_have_count(0)
    console_page.get_by_label("Post", exact=True).fill(post.content)
    console_page.get_by_role("button", name="Generate all").click()
    expect(console_page.get_by_text("Written without a language model.")).to_have_count(1)
    expect(console_page.get_by_label("Slug", exact=True)).not_to_have_value("")
    console_page.get_by_label("Slug", exact=True).fill("my-own-slug")
    tweet = console_page.get_by_label("Tweet 1", exact=True)
    tweet.fill("Bread 🍞: https://www.example.com/a/long/path/to/bread")
    expect(tweet).to_have_accessible_description("33 of 280 characters")
    tweet.fill("x" * 281)
    expect(tweet).to_have_accessible_description("281 of 280 characters")
    # In a wide window, the generated texts are to the right of the post.
    boxes = [
        console_page.get_by_label(name, exact=True).bounding_box() for name in ("Post", "Slug")
    ]
    assert boxes[0]
    assert boxes[1]
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]

    console_page.get_by_label("Search photos").fill("bread")
    console_page.get_by_label("Search photos").press("Enter")
    photos = console_page.get_by_role("listitem").filter(
        has=console_page.get_by_role("button", name="Use photo")
    )
    expect(photos).to_have_count(12)
    expect(photos.first).to_contain_text("Photo by Pressroom Sandbox on Unsplash")
    # The content security policy of the console lets the browser load the photo.
    photo = photos.first.get_by_role("img")
    photo.scroll_into_view_if_needed()
    expect(photo).to_have_js_property("complete", True)
    assert int(photo.evaluate("image => image.naturalWidth")) > 0
    if IS_THOROUGH:
        require_accessible(console_page)
    photos.first.get_by_role("button", name="Use photo").click()
    expect(console_page.get_by_label("HTML with the photo", exact=False).first).to_be_visible()
    expect(console_page.get_by_label("Slug", exact=True)).to_have_value("my-own-slug")
    expect(console_page.get_by_label("Post", exact=True)).to_have_value(post.content)
    console_page.set_viewport_size({"width": NARROW_WIDTH, "height": 640})
    assert fits_width(console_page)
    if IS_THOROUGH:
        console_page.emulate_media(color_scheme="dark")
        require_accessible(console_page)


ROW_COUNT = 500


@pytest.mark.tier("browser")
def test_restored_upload_form_shows_no_progress_and_can_be_sent(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    new_list(client)
    console_page.goto(f"{stack.api_url}/console/imports/new")
    bar = console_page.get_by_role("progressbar", name="Upload progress")
    button = console_page.get_by_role("button", name="Preview")
    # Simulate an upload: show the progress bar, and disable the button of the form.
    console_page.evaluate("document.querySelector('.upload').hidden = false")
    button.evaluate("button => { button.disabled = true }")
    expect(bar).to_be_visible()
    # Browsers send the event ``pageshow`` when they restore a page to which the user returns.
    console_page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    expect(bar).to_be_hidden()
    expect(button).to_be_enabled()


@pytest.mark.tier("browser")
def test_upload_form_shows_each_error_next_to_its_field(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    new_list(client)
    new_list(client)
    console_page.goto(f"{stack.api_url}/console/imports/new")
    file: FilePayload = {
        "name": "members.csv",
        "mimeType": "text/csv",
        "buffer": b"email\na@example.com\n",
    }
    upload = console_page.get_by_label("File", exact=True)
    upload.set_input_files(file)
    console_page.get_by_role("button", name="Preview").click()
    mailing_list = console_page.get_by_label("List", exact=True)
    expect(mailing_list).to_have_attribute("aria-invalid", "true")
    expect(mailing_list).to_be_focused()
    expect(console_page.locator(".field", has=mailing_list)).to_contain_text("Choose a list.")
    expect(upload).not_to_have_attribute("aria-invalid", "true")
    expect(console_page.get_by_role("progressbar", name="Upload progress")).to_be_hidden()
    mailing_list.select_option(index=1)
    console_page.get_by_role("button", name="Preview").click()
    expect(console_page.get_by_role("heading", name="Preview of the results")).to_be_visible()


@pytest.mark.tier("fast", "browser")
def test_owner_can_map_columns_import_members_and_undo_the_import(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    console_page.goto(f"{stack.api_url}/console/lists")
    console_page.get_by_role("link", name="Imports").click()
    console_page.get_by_role("link", name="Import a file").click()
    rows = [(f"r{number}@example.com", f"R {number}", "Rome") for number in range(ROW_COUNT)]
    file = build_csv(["Mail", "Who", "Home town"], *rows, ("not an address", "Nobody", "Oslo"))
    console_page.locator("#file").set_input_files(
        {"name": "readers.csv", "mimeType": "text/csv", "buffer": file}
    )
    console_page.get_by_role("button", name="Preview").click()
    expect(console_page.get_by_role("heading", name="Columns")).to_be_visible()
    console_page.get_by_label("Who", exact=True).select_option(label="Name")
    console_page.get_by_label("Home town").select_option(label="Create a field")
    console_page.get_by_role("button", name="Refresh preview").click()
    expect(console_page.get_by_text("New field: text")).to_be_visible()
    expect(console_page.get_by_text("R 0", exact=True)).to_be_visible()

    import_button = console_page.get_by_role("button", name=f"Import {ROW_COUNT} new members")
    # The import button stays visible, although the preview is longer than the window.
    expect(import_button).to_be_in_viewport()
    # On a phone, the button doesn't cover the tables.
    size = console_page.viewport_size
    assert size is not None
    console_page.set_viewport_size({"width": NARROW_WIDTH, "height": 640})
    console_page.evaluate("scrollTo(0, 0)")
    expect(import_button).not_to_be_in_viewport()
    console_page.set_viewport_size(size)
    import_button.click()
    expect(console_page.get_by_role("heading", level=1)).to_have_text(
        f"{ROW_COUNT} new · 1 not imported"
    )
    expect(console_page.locator(".notice")).to_have_count(0)
    expect(console_page.get_by_role("link", name="errors.csv")).to_be_visible()
    expect(console_page.get_by_text("not an address, Nobody, Oslo")).to_be_visible()
    members = active_members(client, list_id).values()
    assert {each["fields"]["home_town"] for each in members} == {"Rome"}

    # A second window shows the same state of the import as the first window.
    second_page = console_page.context.new_page()
    second_page.goto(console_page.url)
    assert second_page.locator("#state").inner_text() == console_page.locator("#state").inner_text()
    second_page.close()

    console_page.get_by_role("link", name="Undo this import").click()
    expect(console_page.get_by_role("heading", level=1)).to_have_text(
        f"Undo the import of {ROW_COUNT} members?"
    )
    console_page.get_by_role("button", name="Undo import").click()
    expect(console_page.get_by_text(f"removed {ROW_COUNT} members")).to_be_visible()
    assert active_members(client, list_id) == {}


@pytest.mark.tier("browser")
def test_import_page_resumes_progress_after_lost_connection(
    stack: Stack, open_page: OpenPage, owner: Owner, client: httpx2.Client
) -> None:
    page = open_page("about:blank")
    log_in_browser(page, stack, owner.user_id)
    failed_requests: list[str] = []

    def fail_request(route: Route) -> None:
        failed_requests.append(route.request.url)
        # Browsers repeat a request after a broken connection, but not after an error response.
        if len(failed_requests) == 1:
            route.abort()
        else:
            route.fulfill(status=502)

    page.route("**/events", fail_request, times=2)
    list_id = new_list(client)["id"]
    addresses = build_address_file(
        *(f"w{number}.{owner.user_id}@example.com" for number in range(3))
    )
    with stack.resources.unit_of_work() as uow:
        # The lock on the list delays the import until the page of the import has twice lost its
        # connection to the API.
        locks.lock_list(uow, list_id)
        upload(client, list_id, addresses, prefer="respond-async")
        [import_record] = data(client.get("/imports"))["items"]
        page.goto(f"{stack.api_url}/console/imports/{import_record['id']}")
        while len(failed_requests) < 2:
            page.wait_for_timeout(100)
    expect(page.get_by_role("heading", name="Results", exact=True)).to_be_visible()
    assert page.locator("dd").all_inner_texts()[:2] == ["3", "3"]


@pytest.mark.tier("fast", "browser")
def test_images_can_be_chosen_dropped_or_pasted_and_their_links_copied(
    stack: Stack, console_page: Page
) -> None:
    png = encoded("PNG")
    create_data_transfer = """([name, numbers]) => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(numbers)], name, {type: "image/png"}));
        return data;
    }"""
    console_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    console_page.goto(f"{stack.api_url}/console/images")
    names = ["one.png", "two.png"]
    files = [{"name": name, "mimeType": "image/png", "buffer": png} for name in names]
    console_page.get_by_label("Image file").set_input_files(files)  # type: ignore[arg-type]
    console_page.get_by_role("button", name="Upload", exact=True).click()
    expect(console_page.locator(".grid li")).to_have_count(2)

    data_transfer = console_page.evaluate_handle(create_data_transfer, ["dropped.png", list(png)])
    console_page.dispatch_event("main", "drop", {"dataTransfer": data_transfer})
    expect(console_page.locator(".grid li")).to_have_count(3)

    data_transfer = console_page.evaluate_handle(create_data_transfer, ["pasted.png", list(png)])
    console_page.evaluate(
        "data => document.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data}))",
        data_transfer,
    )
    expect(console_page.locator(".grid li")).to_have_count(4)
    if IS_THOROUGH:
        require_accessible(console_page)

    data_transfer = console_page.evaluate_handle(
        create_data_transfer, ["words.txt", list(b"words")]
    )
    console_page.dispatch_event("main", "drop", {"dataTransfer": data_transfer})
    error = console_page.locator(".sent .wrong")
    expect(error).to_contain_text("words.txt: The file name must end in")
    expect(console_page.locator(".sent progress")).to_have_count(0)
    expect(console_page.locator(".sent")).not_to_contain_text("was uploaded")

    console_page.get_by_role("link", name="pasted.png").click()
    expect(console_page.get_by_role("heading", level=1)).to_have_text("pasted.png")
    console_page.get_by_role("button", name="Copy: Markdown").first.click()
    # Screen readers announce that the text was copied.
    expect(console_page.get_by_role("button", name="Copied: Markdown")).to_have_text("Copied")
    expect(console_page.get_by_role("status")).to_have_text("Copied: Markdown")
    link = console_page.get_by_label("Link").first.input_value()
    copied_text = console_page.evaluate("navigator.clipboard.readText()")
    assert copied_text == f"![]({link})"


@pytest.mark.tier("fast", "browser")
def test_images_page_loads_small_pictures_and_shows_two_in_a_row_on_a_phone(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    for width, height in ((1_200, 800), (500, 1_500)):
        data(send(client, noise((width, height), quality=90)))
    console_page.set_viewport_size({"width": 360, "height": 640})
    sizes: list[int] = []
    console_page.on(
        "response",
        lambda reply: sizes.append(len(reply.body())) if "/media/" in reply.url else None,
    )
    console_page.goto(f"{stack.api_url}/console/images", wait_until="networkidle")
    assert len(sizes) == 2
    assert max(sizes) <= 40_000
    pixels = console_page.locator(".grid img").evaluate_all(
        "images => images.map((each) => each.naturalWidth * each.naturalHeight)"
    )
    assert len(pixels) == 2
    assert 0 < max(pixels) <= 100_000
    first, second = (each.bounding_box() for each in console_page.locator(".grid li").all())
    assert first
    assert second
    assert first["y"] == second["y"]
    assert fits_width(console_page, 360)


@pytest.mark.tier("fast", "browser")
def test_preview_of_the_sign_up_page_follows_the_form(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    mailing_list = new_list(client)
    logo = data(send(client, encoded("PNG"), "logo.png"))
    console_page.goto(f"{stack.api_url}/console/lists/{mailing_list['id']}/public")
    preview = console_page.frame_locator("#preview-page")
    expect(preview.get_by_role("heading", level=1)).to_have_count(1)
    console_page.get_by_label("Text on the sign-up page").fill("Each morning <b>")
    expect(preview.locator(".words")).to_have_text("Each morning <b>")
    console_page.get_by_label("Logo").select_option(label="logo.png")
    expect(preview.locator(".logo img")).to_have_attribute("src", logo["view_url"])
    console_page.get_by_label("Colour").fill("#1d4ed8")
    expect(preview.locator("form button")).to_have_css("background-color", "rgb(29, 78, 216)")
    # The preview must be as high as the previewed page, so that the preview shows the button of the
    # page.
    button_box = preview.locator("form button").bounding_box()
    preview_box = console_page.locator(".preview").bounding_box()
    assert button_box is not None
    assert preview_box is not None
    assert button_box["y"] + button_box["height"] < preview_box["y"] + preview_box["height"]
    console_page.get_by_role("button", name="Save", exact=True).click()
    expect(console_page.get_by_role("status").first).to_have_text("The sign-up page was changed.")
    expect(preview.locator(".words")).to_have_text("Each morning <b>")


@pytest.mark.tier("fast", "browser")
def test_overview_shows_large_figures_and_fits_a_phone(
    stack: Stack, console_page: Page, client: httpx2.Client
) -> None:
    mailing_list = new_list(client, title=LONG_WORD * 2)
    import_members_file(client, mailing_list["id"], build_address_file(*build_addresses(11)))
    data(subscribe(client, mailing_list["id"], new_address()))
    console_page.goto(f"{stack.api_url}/console")
    figures = console_page.get_by_role("region", name="Members", exact=True)
    for figure in figures.get_by_role("definition").all():
        size = figure.evaluate("each => parseFloat(getComputedStyle(each).fontSize)")
        assert size >= 28
    chart = figures.get_by_role("slider", name="1 joined, 0 left, net +1.")
    expect(chart).to_be_visible()
    require_accessible(console_page)
    console_page.set_viewport_size({"width": NARROW_WIDTH, "height": 640})
    assert fits_width(console_page)
    assert find_protruding_elements(console_page) == []
