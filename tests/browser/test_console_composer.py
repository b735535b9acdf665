"""The composer in a real browser."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.consoles import console_in
from tests.browser.looks import IS_THOROUGH, NARROW, Keep, fits, require_accessible
from tests.contract.composing import fresh
from tests.stack import Stack


@pytest.mark.both("browser")
def test_a_post_is_pasted_written_about_and_given_a_photo(
    stack: Stack, browser: Browser, keep: Keep
) -> None:
    post = fresh()
    with console_in(browser, stack, stack.new_owner()) as page:
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
        keep(page, "console-composer-written")

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
        keep(page, "console-composer-photo")
        page.set_viewport_size({"width": NARROW, "height": 640})
        assert fits(page)
        if IS_THOROUGH:
            page.emulate_media(color_scheme="dark")
            require_accessible(page)
        keep(page, "console-composer-narrow")
