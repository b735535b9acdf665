"""The composer and the operators' pages in a real browser."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.consoles import console_in, fits
from tests.browser.test_unsubscribe import NARROW, require_accessible
from tests.consoles import at_operators_console
from tests.contract.composing import fresh
from tests.contract.subscribers import new_list
from tests.stack import Stack
from tests.visiting import SESSION

Keep = Callable[[Page, str], Path]


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_post_is_pasted_written_about_and_given_a_photo(
    stack: Stack, browser: Browser, keep: Keep, *, scripts: bool
) -> None:
    kind, post = "js" if scripts else "plain", fresh()
    with console_in(browser, stack, stack.new_owner(), scripts=scripts, dark=scripts) as page:
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
        keep(page, f"console-composer-written-{kind}")

        page.get_by_label("What the photo shows").fill("bread")
        page.get_by_label("What the photo shows").press("Enter")
        photos = page.get_by_role("listitem").filter(has=page.get_by_role("button", name="Use it"))
        expect(photos).to_have_count(12)
        expect(photos.first).to_contain_text("Photo by Pressroom Sandbox on Unsplash")
        if scripts:
            # The page's policy lets it load.
            photo = photos.first.get_by_role("img")
            photo.scroll_into_view_if_needed()
            expect(photo).to_have_js_property("complete", True)
            assert int(photo.evaluate("image => image.naturalWidth")) > 0
            require_accessible(page)
        photos.first.get_by_role("button", name="Use it").click()
        expect(page.get_by_label("HTML that shows it", exact=False).first).to_be_visible()
        expect(page.get_by_label("Slug")).to_have_value("my-own-slug")
        expect(page.get_by_label("Post", exact=True)).to_have_value(post.content)
        keep(page, f"console-composer-photo-{kind}")
        page.set_viewport_size({"width": NARROW, "height": 640})
        keep(page, f"console-composer-narrow-{kind}")
        if scripts:
            assert fits(page, NARROW)
            require_accessible(page)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_operators_see_what_waits_and_can_read_each_page(
    stack: Stack, browser: Browser, keep: Keep, *, dark: bool
) -> None:
    shade = "dark" if dark else "light"
    with (
        at_operators_console(stack) as operator,
        console_in(browser, stack, operator.owner, dark=dark) as page,
    ):
        cookie = operator.visitor.client.cookies[SESSION]
        page.context.add_cookies([{"name": SESSION, "value": cookie, "url": stack.api_url}])
        new_list(operator.api)
        page.goto(f"{stack.api_url}/console")
        page.get_by_role("link", name="Operators").click()
        tabs = page.get_by_role("navigation", name="For operators")
        for label in ("What waits", "Users", "Orders", "Jobs", "Upkeep"):
            tabs.get_by_role("link", name=label).click()
            page.set_viewport_size({"width": 1280, "height": 900})
            require_accessible(page)
            keep(page, f"console-operators-{label.lower().replace(' ', '-')}-{shade}")
            page.set_viewport_size({"width": NARROW, "height": 640})
            require_accessible(page)
            assert fits(page, NARROW)
        tabs.get_by_role("link", name="Users").click()
        page.get_by_label("Find a user").fill(operator.owner.email)
        page.get_by_role("button", name="Find", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(operator.owner.email)
        require_accessible(page)
        assert fits(page, NARROW)
        page.get_by_label("Put them on the plan").select_option("free")
        page.get_by_role("button", name="Change the plan").click()
        expect(page.get_by_role("status")).to_have_text("They are on the free plan now.")
        keep(page, f"console-operators-user-{shade}")
