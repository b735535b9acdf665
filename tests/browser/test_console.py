import httpx2
import pytest
from playwright.sync_api import Page, Route, expect

from devstack.harness.stack import Owner, Stack
from services.subscriptions.members import locks
from tests.support.browser.consoles import log_in_browser
from tests.support.browser.looks import IS_THOROUGH, NARROW, Open, fits, require_accessible
from tests.support.composer.composing import fresh
from tests.support.http.replies import data
from tests.support.images.pictures import encoded
from tests.support.imports.bulk import everybody, imported, of_addresses, sheet, upload
from tests.support.lists.subscribers import new_list


@pytest.fixture
def page(page: Page, stack: Stack, owner: Owner) -> Page:
    """In which the owner is logged in."""
    log_in_browser(page, stack, owner.user_id)
    return page


@pytest.mark.tier("fast", "browser")
def test_an_owner_makes_a_list_finds_members_and_undoes_a_bulk_action(
    stack: Stack, page: Page, owner: Owner, client: httpx2.Client
) -> None:
    page.goto(f"{stack.api_url}/account")
    page.get_by_role("link", name="Pressroom").click()
    page.get_by_role("link", name="Create a list").click()
    page.get_by_role("textbox", name="Title").fill("The Daily Demo")
    page.get_by_label("URL").fill("Not a slug")
    page.get_by_role("button", name="Create the list").click()
    expect(page.get_by_label("URL")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("textbox", name="Title")).to_have_value("The Daily Demo")
    page.get_by_label("URL").fill(f"daily-{owner.user_id}")
    page.get_by_role("button", name="Create the list").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("The Daily Demo")
    expect(page.get_by_role("status")).to_contain_text("is created.")
    [made] = data(client.get("/lists"))["items"]
    imported(client, made["id"], of_addresses("ada@example.com", "bob@example.com"))

    page.get_by_role("link", name="Members").click()
    expect(page.get_by_role("link", name="bob@example.com")).to_be_visible()
    page.get_by_label("Address or name").press_sequentially("ada")
    expect(page.get_by_role("link", name="bob@example.com")).to_have_count(0)
    expect(page.get_by_role("link", name="ada@example.com")).to_be_visible()
    assert "q=ada" in page.url

    page.get_by_role("link", name="ada@example.com").click()
    page.get_by_label("Name", exact=True).fill("Ada")
    page.get_by_label("Tags").fill("vip")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("The member is changed.")

    page.get_by_role("link", name="Members").first.click()
    page.get_by_role("link", name="Change all of them").click()
    page.get_by_label("Switch their mail off").check()
    page.get_by_role("button", name="Apply to 2 members").click()
    state = page.locator("#state").get_by_role("status")
    expect(state.filter(has_text="Done: 2 of 2 changed")).to_be_visible()
    page.get_by_role("button", name="Undo it").click()
    expect(state.filter(has_text="Undone: 2 are as before")).to_be_visible()
    ada = data(client.get(f"/lists/{made['id']}/members/ada@example.com"))
    assert (ada["name"], ada["tags"], ada["email_enabled"]) == ("Ada", ["vip"], True)


@pytest.mark.tier("browser")
def test_the_finder_opens_by_its_keys_and_leads_on(
    stack: Stack, page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client, title="Letters to find")["id"]
    imported(client, list_id, of_addresses("letty@example.com"))
    page.goto(f"{stack.api_url}/console")
    for keys in ("Control+k", "Meta+k"):
        page.keyboard.press(keys)
        dialog = page.get_by_role("dialog", name="Find pages, lists and members")
        expect(dialog).to_be_visible()
        expect(page.locator(":focus")).to_have_attribute("type", "search")
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
    page.get_by_role("link", name="Find", exact=True).click()
    page.keyboard.type("lett")
    expect(dialog.get_by_role("link")).to_have_text(
        ["Letters to find", "letty@example.com", "Search the members of Letters to find"]
    )
    if IS_THOROUGH:
        require_accessible(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_title("letty@example.com – Pressroom")
    page.keyboard.press("Control+k")
    page.keyboard.type("letters")
    expect(page.get_by_role("dialog").get_by_role("link")).to_have_count(2)
    page.keyboard.press("Enter")
    expect(page).to_have_title("Letters to find – Pressroom")


def test_who_was_logged_out_is_led_back_after_the_login(
    stack: Stack, page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client, title="Letters")["id"]
    page.goto(f"{stack.api_url}/console/lists/{list_id}/members")
    page.context.clear_cookies()
    page.get_by_label("Address or name").press_sequentially("x")
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    assert f"next=%2Fconsole%2Flists%2F{list_id}%2Fmembers" in page.url


@pytest.mark.tier("browser")
def test_a_post_is_pasted_written_about_and_given_a_photo(stack: Stack, page: Page) -> None:
    post = fresh()
    page.goto(f"{stack.api_url}/console")
    page.get_by_role("link", name="Composer").click()
    page.get_by_label("Title", exact=True).fill(post.title)
    # Enter writes nothing, which may cost something.
    page.get_by_label("Title", exact=True).press("Enter")
    expect(page.get_by_label("Title", exact=True)).to_have_value(post.title)
    expect(page.get_by_text("Written by")).to_have_count(0)
    page.get_by_label("Post", exact=True).fill(post.content)
    page.get_by_role("button", name="Write all of it").click()
    expect(page.get_by_text("Written by the offline writer.")).to_have_count(4)
    expect(page.get_by_label("Slug")).not_to_have_value("")
    page.get_by_label("Slug").fill("my-own-slug")

    page.get_by_label("What the photo shows").fill("bread")
    page.get_by_label("What the photo shows").press("Enter")
    photos = page.get_by_role("listitem").filter(has=page.get_by_role("button", name="Use it"))
    expect(photos).to_have_count(12)
    expect(photos.first).to_contain_text("Photo by Pressroom Sandbox on Unsplash")
    # The page's policy lets it load.
    photo = photos.first.get_by_role("img")
    photo.scroll_into_view_if_needed()
    expect(photo).to_have_js_property("complete", True)
    assert int(photo.evaluate("image => image.naturalWidth")) > 0
    if IS_THOROUGH:
        require_accessible(page)
    photos.first.get_by_role("button", name="Use it").click()
    expect(page.get_by_label("HTML that shows it", exact=False).first).to_be_visible()
    expect(page.get_by_label("Slug")).to_have_value("my-own-slug")
    expect(page.get_by_label("Post", exact=True)).to_have_value(post.content)
    page.set_viewport_size({"width": NARROW, "height": 640})
    assert fits(page)
    if IS_THOROUGH:
        page.emulate_media(color_scheme="dark")
        require_accessible(page)


ROWS = 500


@pytest.mark.tier("fast", "browser")
def test_members_are_mapped_imported_watched_and_undone(
    stack: Stack, page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    page.goto(f"{stack.api_url}/console")
    page.get_by_role("link", name="Imports").click()
    page.get_by_role("link", name="Import a file").click()
    rows = [(f"r{number}@example.com", f"R {number}", "Rome") for number in range(ROWS)]
    file = sheet(["Mail", "Who", "Home town"], *rows, ("not an address", "Nobody", "Oslo"))
    page.locator("#file").set_input_files(
        {"name": "readers.csv", "mimeType": "text/csv", "buffer": file}
    )
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Columns")).to_be_visible()
    page.get_by_label("Who", exact=True).select_option(label="Name")
    page.get_by_label("Home town").select_option(label="Create a field")
    page.get_by_role("button", name="Refresh preview").click()
    expect(page.get_by_text("A new field: text")).to_be_visible()
    expect(page.get_by_text("R 0", exact=True)).to_be_visible()

    page.get_by_role("button", name=f"Import it: {ROWS} new members").click()
    expect(page.get_by_role("status")).to_have_text("The import has started.")
    expect(page.get_by_role("heading", name="Results by row")).to_be_visible()
    expect(page.get_by_role("link", name="errors.csv")).to_be_visible()
    expect(page.get_by_text("not an address, Nobody, Oslo")).to_be_visible()
    members = everybody(client, list_id).values()
    assert {each["fields"]["home_town"] for each in members} == {"Rome"}

    # A second window shows the same.
    second = page.context.new_page()
    second.goto(page.url)
    assert second.locator("#state").inner_text() == page.locator("#state").inner_text()
    second.close()

    page.get_by_role("link", name="Undo this import").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Undo the import of {ROWS} members?")
    page.get_by_role("button", name="Undo it").click()
    expect(page.get_by_text(f"{ROWS} members are as before it")).to_be_visible()
    assert everybody(client, list_id) == {}


@pytest.mark.tier("browser")
def test_an_import_is_watched_on_after_a_lost_connection(
    stack: Stack, open_page: Open, owner: Owner, client: httpx2.Client
) -> None:
    page = open_page("about:blank")
    log_in_browser(page, stack, owner.user_id)
    lost: list[str] = []

    def lose(route: Route) -> None:
        lost.append(route.request.url)
        # A browser tries again by itself after a broken connection, but not after an error.
        if len(lost) == 1:
            route.abort()
        else:
            route.fulfill(status=502)

    page.route("**/events", lose, times=2)
    list_id = new_list(client)["id"]
    addresses = of_addresses(*(f"w{n}.{owner.user_id}@example.com" for n in range(3)))
    with stack.resources.unit_of_work() as holding:
        # The import can't end before its connection was lost twice.
        locks.lock_list(holding, list_id)
        upload(client, list_id, addresses, prefer="respond-async")
        [task] = data(client.get("/imports"))["items"]
        page.goto(f"{stack.api_url}/console/imports/{task['id']}")
        while len(lost) < 2:
            page.wait_for_timeout(100)
    expect(page.get_by_role("heading", name="Results by row")).to_be_visible()
    assert page.locator("dd").all_inner_texts()[:2] == ["3", "3"]


@pytest.mark.tier("fast", "browser")
def test_images_are_chosen_dropped_pasted_and_their_links_copied(stack: Stack, page: Page) -> None:
    png = encoded("PNG")
    dropping = """([name, numbers]) => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(numbers)], name, {type: "image/png"}));
        return data;
    }"""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{stack.api_url}/console/images")
    names = ["one.png", "two.png"]
    files = [{"name": each, "mimeType": "image/png", "buffer": png} for each in names]
    page.get_by_label("A new image").set_input_files(files)  # type: ignore[arg-type]
    page.get_by_role("button", name="Add it").click()
    expect(page.locator(".grid li")).to_have_count(2)

    data_transfer = page.evaluate_handle(dropping, ["dropped.png", list(png)])
    page.dispatch_event("main", "drop", {"dataTransfer": data_transfer})
    expect(page.locator(".grid li")).to_have_count(3)

    data_transfer = page.evaluate_handle(dropping, ["pasted.png", list(png)])
    page.evaluate(
        "data => document.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data}))",
        data_transfer,
    )
    expect(page.locator(".grid li")).to_have_count(4)
    if IS_THOROUGH:
        require_accessible(page)

    data_transfer = page.evaluate_handle(dropping, ["words.txt", list(b"words")])
    page.dispatch_event("main", "drop", {"dataTransfer": data_transfer})
    expect(page.locator(".sent")).to_contain_text("words.txt")
    expect(page.locator(".sent progress")).to_have_count(0)
    expect(page.locator(".sent")).not_to_contain_text("is there")

    page.get_by_role("link", name="pasted.png").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("pasted.png")
    page.get_by_role("button", name="Copy: Markdown").first.click()
    # Who does not see the button hears it.
    expect(page.get_by_role("button", name="Copied: Markdown")).to_have_text("Copied")
    expect(page.get_by_role("status")).to_have_text("Copied: Markdown")
    link = page.get_by_label("Link").first.input_value()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"![]({link})"
