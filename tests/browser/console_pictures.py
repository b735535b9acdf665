"""Takes the pictures of the console in docs/console.md, and pictures for comparing two commits.

``make pictures`` writes the pictures that docs/console.md shows into docs/console. ``make
pictures`` also writes pictures of each page in two widths and both colour schemes into
build/pictures, so that a developer can compare two commits by eye.

The program creates a demonstration owner, and uses the API and a browser to create the owner's
data. The statistics of the previous days are inserted directly into the database, because the API
can't create them.
"""

import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from devstack.harness.embedded_services import embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.stack import Stack
from services.credits import ledger
from tests.support.browser.consoles import log_in_browser
from tests.support.http.replies import data
from tests.support.imports.bulk import build_csv, import_members_file
from tests.support.stack.programs import TEST_PROGRAMS

_ROOT = Path(__file__).parents[2]
PICTURES_FOLDER = _ROOT / "docs" / "console"
COMPARISON_FOLDER = _ROOT / "build" / "pictures"
_COMPARISON_WIDTHS = (1280, 360)
_PICTURE_WIDTH = 1040
_PICTURE_HEIGHT = 800
# The console's pages have so few colours that pictures with 64 colours look right. A larger palette
# would make the picture files four times as large.
_PALETTE_COLOURS = 64
_NAMES = ("Ada", "Björn", "Chidi", "Dolores", "Emeka", "Fatima", "Goran", "Hana", "Ines", "Jun")
_POST = (
    "The harbour was silent at noon. For the first time since the strike of 1974 no ferry left"
    " Lisbon for the south bank, and forty thousand commuters looked for another way across the"
    " river.\n\n"
    "The reason was a cable. A storm in the night had torn the power line of the control tower, and"
    " the harbour master kept all ships in port until the radar worked again. By three o'clock"
    " engineers had mended it with a line borrowed from the tram depot.\n\n"
    "Ferries run as usual today. The city promises a second line before the winter."
)
_BRANDING = {"colour": "#0f5c6e", "sign_up_text": "The harbour each morning, in two minutes."}
_TOWNS = ("Lisbon", "Oslo", "Kyoto", "Lagos", "Trieste")
# The number of readers whom the program imports into the list. The pictures show statistics with a
# similar number of sign-ups spread over 30 days, instead of the import on a single day.
_READER_COUNT = 600
_SPREAD_OVER_DAYS = """
    WITH folded AS (DELETE FROM member_days WHERE list_id = %s),
        beside AS (DELETE FROM member_day_deltas WHERE list_id = %s)
    INSERT INTO member_days (list_id, day, source, type, joined, gone, moved_in, moved_out)
    SELECT %s, current_date - 1 - n, 'form', 'free',
        (22 + 9 * sin(n / 4.0) + 6 * sin(n * 2.1))::int, 2 + n %% 5, 0, 0
    FROM generate_series(0, 29) n
"""


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("The pictures are taken by Chromium: install it.")
    COMPARISON_FOLDER.mkdir(parents=True, exist_ok=True)
    with _open_demo_stack() as stack, sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        _take_all(stack, browser)
        browser.close()


@contextmanager
def _open_demo_stack() -> Iterator[Stack]:
    with TemporaryDirectory(dir="/tmp") as folder:
        home = Path(folder)
        with (
            embedded_services(home) as services,
            open_stack(services, home, "pictures", 1, free_port(), programs=TEST_PROGRAMS) as stack,
        ):
            stack.start_sandbox()
            stack.start_api()
            stack.start_worker("media", "bulk", "export", concurrency=1)
            stack.start_worker("request", "photos", "money", "mail", "webhooks", "maintenance")
            yield stack


def _take_all(stack: Stack, browser: Browser) -> None:
    owner = stack.create_owner()
    page = browser.new_page(viewport={"width": _PICTURE_WIDTH, "height": _PICTURE_HEIGHT})
    log_in_browser(page, stack, owner.user_id)
    with stack.client(owner.key) as api:
        mailing_list = _create_list_with_readers(stack, api)
        page.goto(f"{stack.api_url}/console/lists/{mailing_list['id']}")
        _take_picture(page, "list")
        page.goto(f"{stack.api_url}/console/lists/{mailing_list['id']}/members?q=ada.1")
        _take_picture(page, "members", full_page=True)
        api.patch(f"/lists/{mailing_list['id']}", json=_BRANDING).raise_for_status()
        page.goto(f"{stack.api_url}/console/lists/{mailing_list['id']}/public")
        _take_picture(page, "public-page")
        _take_import(page, stack)
        _take_composer(page, stack)
        ledger.grant_credits(
            stack.resources.database, owner.account_id, Decimal(250), source_id="welcome"
        )
        page.goto(f"{stack.api_url}/console/credits")
        _take_picture(page, "credits", full_page=True)
        page.goto(f"{stack.api_url}/console/developers/keys/new")
        _take_picture(page, "new-key")
        for name, path in (("overview", "/console"), ("account", "/account")):
            page.goto(stack.api_url + path)
            _take_comparison_pictures(page, name)


def _create_list_with_readers(stack: Stack, api: httpx2.Client) -> dict[str, Any]:
    mailing_list: dict[str, Any] = data(
        api.post("/lists", json={"title": "The Harbour Post", "slug": "harbour-post"})
    )
    import_members_file(
        api,
        mailing_list["id"],
        build_csv(["Email", "Name"], *_generate_people(_READER_COUNT)),
        "readers.csv",
    )
    stack.query(_SPREAD_OVER_DAYS, *[mailing_list["id"]] * 3)
    return mailing_list


def _generate_people(count: int) -> Iterator[tuple[str, str]]:
    generator = random.Random(count)
    for number in range(count):
        name = generator.choice(_NAMES)
        yield f"{name.lower().replace('ö', 'o')}.{number}@example.com", f"{name} {number}"


def _take_import(page: Page, stack: Stack) -> None:
    rows = [(*person, _TOWNS[number % 5]) for number, person in enumerate(_generate_people(500))]
    file = build_csv(["Mail", "Who", "Home town"], *rows, ("not an address", "Nobody", "Oslo"))
    page.goto(f"{stack.api_url}/console/imports/new")
    page.locator("#file").set_input_files(
        {"name": "moved-in.csv", "mimeType": "text/csv", "buffer": file}
    )
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Columns")).to_be_visible()
    page.get_by_label("Who", exact=True).select_option(label="Name")
    page.get_by_label("Home town").select_option(label="Create a field")
    page.get_by_role("button", name="Refresh preview").click()
    expect(page.get_by_text("New field: text")).to_be_visible()
    _take_picture(page, "import-as-read", full_page=True)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", name="Results", exact=True)).to_be_visible()
    _take_picture(page, "import-done", full_page=True)


def _take_composer(page: Page, stack: Stack) -> None:
    page.goto(f"{stack.api_url}/console/composer")
    page.get_by_label("Title", exact=True).fill("Why the ferries stopped at noon")
    page.get_by_label("Post", exact=True).fill(_POST)
    page.get_by_role("button", name="Generate all").click()
    expect(page.get_by_label("Slug", exact=True)).not_to_have_value("")
    _take_picture(page, "composer", full_page=True)


def _take_picture(page: Page, name: str, *, full_page: bool = False) -> None:
    if full_page:
        _fit_height(page, _PICTURE_WIDTH)
    with Image.open(BytesIO(page.screenshot(animations="disabled"))) as screenshot:
        picture = screenshot.convert("RGB").quantize(_PALETTE_COLOURS)
        picture.save(PICTURES_FOLDER / f"{name}.png", optimize=True)
    _take_comparison_pictures(page, name)


def _take_comparison_pictures(page: Page, name: str) -> None:
    for width in _COMPARISON_WIDTHS:
        page.set_viewport_size({"width": width, "height": _PICTURE_HEIGHT})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            _fit_height(page, width)
            page.screenshot(path=COMPARISON_FOLDER / f"{name}-{width}-{scheme}.png")
    page.set_viewport_size({"width": _PICTURE_WIDTH, "height": _PICTURE_HEIGHT})
    page.emulate_media(color_scheme="light")


def _fit_height(page: Page, width: int) -> None:
    """Make the window as high as the page.

    In a screenshot that is larger than the window, the menu and the bars would be in the middle.
    """
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": max(height, _PICTURE_HEIGHT)})


if __name__ == "__main__":
    main()
