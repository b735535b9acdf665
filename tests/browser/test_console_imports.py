"""Imports in a real browser: a file is mapped, watched and undone; and images."""

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.consoles import console_in, log_in_browser
from tests.browser.looks import IS_THOROUGH, Keep, require_accessible
from tests.contract.bulk import everybody, of_addresses, upload
from tests.contract.replies import data
from tests.contract.subscribers import new_list
from tests.pictures import encoded
from tests.stack import Owner, Stack

ROWS = 500


@pytest.fixture
def sheet_of_members(tmp_path: Path, owner: Owner) -> Path:
    path = tmp_path / "readers.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Mail", "Who", "Home town"])
        for number in range(ROWS):
            writer.writerow([f"r{number}.{owner.user_id}@example.com", f"R {number}", "Rome"])
        writer.writerow(["not an address", "Nobody", "Oslo"])
    return path


@pytest.mark.both("browser")
def test_members_are_mapped_imported_watched_and_undone(
    stack: Stack, browser: Browser, keep: Keep, owner: Owner, sheet_of_members: Path
) -> None:
    with console_in(browser, stack, owner) as page, stack.client(owner.key) as api:
        list_id = new_list(api)["id"]
        page.goto(f"{stack.api_url}/console")
        page.get_by_role("link", name="Imports").click()
        page.get_by_role("link", name="Import a file").click()
        page.locator("#file").set_input_files(sheet_of_members)
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("heading", name="Columns")).to_be_visible()
        keep(page, "console-import-looked-at")
        page.get_by_label("Who", exact=True).select_option(label="Name")
        page.get_by_label("Home town").select_option(label="Create a field")
        page.get_by_role("button", name="Refresh preview").click()
        expect(page.get_by_text("A new field: text")).to_be_visible()
        expect(page.get_by_text("R 0", exact=True)).to_be_visible()

        page.get_by_role("button", name=f"Import it: {ROWS} new members").click()
        expect(page.get_by_role("status")).to_have_text("The import has started.")
        keep(page, "console-import-at-work")
        expect(page.get_by_role("heading", name="Results by row")).to_be_visible()
        expect(page.get_by_role("link", name="errors.csv")).to_be_visible()
        expect(page.get_by_text("not an address, Nobody, Oslo")).to_be_visible()
        keep(page, "console-import-done")
        members = everybody(api, list_id).values()
        assert {each["fields"]["home_town"] for each in members} == {"Rome"}

        # A second window shows the same.
        second = page.context.new_page()
        second.goto(page.url)
        assert second.locator("#state").inner_text() == page.locator("#state").inner_text()
        second.close()

        page.get_by_role("link", name="Undo this import").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(
            f"Undo the import of {ROWS} members?"
        )
        keep(page, "console-import-undo")
        page.get_by_role("button", name="Undo it").click()
        expect(page.get_by_text(f"{ROWS} members are as before it")).to_be_visible()
        keep(page, "console-import-undone")
        assert everybody(api, list_id) == {}


@pytest.mark.full("browser")
def test_an_import_is_watched_on_after_a_lost_connection(
    stack: Stack, browser: Browser, owner: Owner
) -> None:
    context = browser.new_context()
    page = context.new_page()
    log_in_browser(page, stack, owner.user_id)
    lost: list[str] = []

    def lose(route: Route) -> None:
        lost.append(route.request.url)
        route.abort()

    page.route("**/events", lose, times=2)
    with stack.client(owner.key) as api:
        list_id = new_list(api)["id"]
        addresses = of_addresses(*(f"w{n}.{owner.user_id}@example.com" for n in range(30_000)))
        upload(api, list_id, addresses, prefer="respond-async")
        [task] = data(api.get("/imports"))["items"]
    page.goto(f"{stack.api_url}/console/imports/{task['id']}")
    expect(page.get_by_role("heading", name="Results by row")).to_be_visible()
    assert page.locator("dd").all_inner_texts()[:2] == ["30,000", "30,000"]
    # If it was still at work when the page was opened, the connection was lost and made again.
    assert len(lost) in {0, 2}
    context.close()


@pytest.mark.both("browser")
def test_images_are_chosen_dropped_pasted_and_their_links_copied(
    stack: Stack, browser: Browser, keep: Keep, owner: Owner
) -> None:
    png = encoded("PNG")
    dropping = """([name, numbers]) => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(numbers)], name, {type: "image/png"}));
        return data;
    }"""
    with console_in(browser, stack, owner) as page:
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
        keep(page, "console-images-four")

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
        keep(page, "console-image")
