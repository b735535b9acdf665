"""Tests of the composer page, which generates texts and finds stock photos.

The page shows the price of each text, and credits the photographers.
"""

import html
import re
from decimal import Decimal

import httpx2

from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.sandbox.sandbox_settings import UNSPLASH_PREFIX
from models import AttachmentStatus
from services.composer.text.post import Post
from tests.support.composer.composer_stack import CALL_PRICE, ComposerStack, build_unique_post
from tests.support.composer.composing import (
    METADATA,
    TWEETS,
    build_post_body,
    find_metadata_faults,
    find_tweets_faults,
    make_unique_post,
)
from tests.support.credits import credits
from tests.support.http.replies import data
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    calls_of,
    forms_of,
    read_error,
    read_page,
)

COMPOSER_PATH = "/console/composer"


def compose(
    owner: OwnerAtConsole, button: dict[str, str], status: int = 200, /, **form_values: str
) -> tuple[str, dict[str, str]]:
    """Open the composer, fill in the form, and click a button.

    Return the text of the page that the click opens, and the values in the form on that page.
    """
    page = owner.visitor.get(COMPOSER_PATH)
    return click_button(owner, page, button, status, **form_values)


def click_button(
    owner: OwnerAtConsole,
    page: httpx2.Response,
    button: dict[str, str],
    status: int = 200,
    /,
    **form_values: str,
) -> tuple[str, dict[str, str]]:
    """Fill in the form of an open page, and click a button.

    Return the text of the page that the click opens, and the values in the form on that page.
    """
    [(action, values)] = forms_of(page)
    assert action == COMPOSER_PATH
    # A browser sends each field as a part of a multipart body.
    parts = {name: (None, value) for name, value in {**values, **form_values, **button}.items()}
    reply = owner.visitor.client.post(COMPOSER_PATH, files=parts)
    return read_page(reply, status), forms_of(reply)[0][1]


def select_texts(fields: dict[str, str], *names: str) -> dict[str, str]:
    return {name: fields[name].replace("\r\n", "\n") for name in names}


def join_tweets(fields: dict[str, str]) -> dict[str, str]:
    """Join the tweets of all form fields into one text, like the API's field `tweets`."""
    texts = [text for name, text in sorted(fields.items()) if name.startswith("tweet_")]
    return {"tweets": "\n\n".join(texts)}


def form_values_of(new_post: Post) -> dict[str, str]:
    return {"title": new_post.title, "content": new_post.content}


def test_console_composer_writes_the_same_texts_as_the_api_and_names_the_writer(
    shared_console: OwnerAtConsole,
) -> None:
    text = shared_console.see(COMPOSER_PATH)
    assert "costs" not in text
    new_post = make_unique_post()
    text, fields = compose(shared_console, {"write": "all"}, **form_values_of(new_post))
    assert find_metadata_faults(new_post, select_texts(fields, "slug", "summary", "tags")) == []
    assert find_tweets_faults(new_post, join_tweets(fields)) == []
    assert text.count("Written without a language model") == 1
    assert (fields["title"], fields["content"]) == (new_post.title, new_post.content)
    reply = shared_console.api.post(METADATA, json=build_post_body(new_post))
    assert data(reply) == select_texts(fields, "slug", "summary", "tags")
    assert data(shared_console.api.post(TWEETS, json=build_post_body(new_post))) == join_tweets(
        fields
    )
    [call] = calls_of(text)
    assert call.body["title"] == new_post.title


def test_console_composer_writes_a_single_part_and_keeps_all_other_input(
    shared_console: OwnerAtConsole,
) -> None:
    new_post = make_unique_post()
    text, fields = compose(shared_console, {"write": "slug"}, **form_values_of(new_post))
    assert fields["slug"]
    assert "summary" not in fields
    changed = {**fields, "slug": "my-own", "title": "<b>Another</b>"}
    page = shared_console.visitor.get(COMPOSER_PATH)
    text, fields = click_button(shared_console, page, {"write": "tags"}, **changed)
    assert (fields["slug"], fields["title"]) == ("my-own", "<b>Another</b>")
    assert fields["tags"]
    assert "<b>Another" not in text


def test_console_composer_shows_errors_next_to_their_fields_and_keeps_the_input(
    shared_console: OwnerAtConsole,
) -> None:
    text, fields = compose(
        shared_console, {"write": "all"}, 422, title=" ", content="\r\n", words="kept"
    )
    assert read_error(text, "content") == "Enter a title or paste a post."
    assert fields["words"] == "kept"
    text, fields = compose(shared_console, {"write": "slug"}, 422, title="x" * 501, content="kept")
    assert "500" in read_error(text, "title")
    assert fields["content"] == "kept"
    text, _ = compose(shared_console, {"find": "yes"}, 422, content="kept", words=" ")
    assert read_error(text, "words")
    # In a browser, pressing Enter clicks the first button of the form. The first button must
    # therefore not generate texts, for which the owner would have to pay.
    text, fields = compose(shared_console, {"enter": "yes"}, title="By the enter key")
    assert fields["title"] == "By the enter key"
    assert "Written by" not in text


def test_console_composer_finds_and_credits_and_uses_stock_photos(
    shared_console: OwnerAtConsole, stack: Stack
) -> None:
    words = make_unique_post().content[-30:]
    policy = shared_console.visitor.get(COMPOSER_PATH).headers["content-security-policy"]
    assert stack.sandbox_url not in policy
    page = shared_console.visitor.get(COMPOSER_PATH)
    text, fields = click_button(shared_console, page, {"find": "yes"}, title="Kept", words=words)
    assert text.count("<figure") == 0
    assert fields["title"] == "Kept"
    image_urls = re.findall(r'<img src="([^"]+)"', text)
    assert len(image_urls) == 12
    assert all(
        url.startswith(f"{stack.sandbox_url}{UNSPLASH_PREFIX}/pictures/") for url in image_urls
    )
    first_credit = html.unescape(re.findall(r"<p>(Photo by .*?)</p>", text)[0])
    assert ">Pressroom Sandbox</a> on <a" in first_credit
    assert first_credit.count("utm_source=pressroom&utm_medium=referral") == 2
    photo_endpoints = re.findall(r'name="use" value="([^"]+)"', text)
    # After a click on another button, the page still shows the photos that were found.
    text, fields = click_button(
        shared_console, page, {"write": "slug"}, **{**fields, "content": "Bread."}
    )
    assert re.findall(r'<img src="([^"]+)"', text) == image_urls
    use_first_photo = {"use": html.unescape(photo_endpoints[0])}
    text, fields = click_button(shared_console, page, use_first_photo, **fields)
    assert fields["used_url"].startswith(f"{stack.sandbox_url}{UNSPLASH_PREFIX}/pictures/")
    assert fields["slug"]
    figure = html.unescape(re.findall(r'id="figure" value="([^"]+)"', text)[0])
    assert figure.startswith(f'<figure><img src="{html.escape(fields["used_url"])}"')
    assert "Pressroom Sandbox</a> on <a" in figure
    text, _ = click_button(shared_console, page, {"page": "2"}, **fields)
    assert "page 2." in text
    # Page 2 of the search results still shows the chosen photo, but no other photo from page 1.
    assert set(re.findall(r'<img src="([^"]+)"', text)) & set(image_urls) == {image_urls[0]}
    text, fields = click_button(
        shared_console, page, {"use": "http://127.0.0.1:9/photos/x"}, 400, **fields
    )
    assert fields["title"] == "Kept"


def choose_photo(console: OwnerAtConsole, provider: str) -> tuple[str, dict[str, str]]:
    """Search for photos, and choose the first photo."""
    find_button = {"find": "yes", "provider": provider, "words": make_unique_post().content[-30:]}
    text, fields = compose(console, find_button, title="Kept")
    endpoint = html.unescape(re.findall(r'name="use" value="([^"]+)"', text)[0])
    return click_button(console, console.visitor.get(COMPOSER_PATH), {"use": endpoint}, **fields)


def test_console_composer_adds_a_photo_with_its_credit_to_the_images(
    console: OwnerAtConsole,
) -> None:
    text, fields = choose_photo(console, "openverse")
    assert '<button name="add"' in text
    text, fields = click_button(
        console, console.visitor.get(COMPOSER_PATH), {"add": "yes"}, **fields
    )
    assert fields["title"] == "Kept"
    [image] = data(console.api.get("/attachments"))["items"]
    assert (
        f'added to <a href="{console.visitor.stack.api_url}/console/images/{image["hash_id"]}"'
        in text
    )
    assert '<button name="add"' not in text
    # On a busy machine, the page is shown before the conversion of the image has ended.
    path = f"/attachments/{image['hash_id']}"
    eventually(
        lambda: data(console.api.get(path))["status"] == AttachmentStatus.READY,
        what="the conversion of the copy",
    )
    image = data(console.api.get(path))
    assert image["alt_text"] == "Hills"
    assert image["title"] == "“Hills” by Pressroom Sandbox, CC0 1.0"
    assert image["original_filename"].startswith("openverse-")
    # The copy has the full size of the photo, not the small size of the search result.
    assert image["width"] > 1000
    assert image["renditions"]


def test_console_composer_stores_no_copy_of_a_photo_whose_provider_forbids_copies(
    console: OwnerAtConsole,
) -> None:
    text, fields = choose_photo(console, "unsplash")
    assert "Unsplash allows no copies. Use the photo’s URL." in text
    assert '<button name="add"' not in text
    page = console.visitor.get(COMPOSER_PATH)
    text, fields = click_button(console, page, {"add": "yes"}, 403, **fields)
    assert "Unsplash doesn't allow copies of its photos." in html.unescape(text)
    assert fields["title"] == "Kept"
    assert data(console.api.get("/attachments"))["items"] == []


def test_console_composer_shows_a_notice_instead_of_the_button_if_the_storage_is_full(
    stack: Stack,
) -> None:
    port = free_port()
    settings = {
        "PRESSROOM_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "PRESSROOM_QUOTA_PAID": "storage_mb=0",
    }
    with stack.run_second_api(port, **settings) as api, at_console(api) as console:
        text, _ = choose_photo(console, "openverse")
        assert "You have reached your plan’s limit for storage (MB)." in text
        assert '<button name="add"' not in text


def test_console_composer_counts_the_characters_of_each_tweet(
    shared_console: OwnerAtConsole,
) -> None:
    tweets = {
        "tweet_1": "Bread: https://www.example.com/a/long/path/to/bread",
        "tweet_2": "麺" * 141,
    }
    text, fields = compose(shared_console, {"enter": "yes"}, tweets_by="offline", **tweets)
    counts = re.findall(r'<span class="hint( over)?" id="tweet_\d-hint"><b>(\d+)</b> of 280', text)
    assert counts == [("", "30"), (" over", "282")]
    assert {name: fields[name] for name in tweets} == tweets


def test_console_composer_allows_images_only_from_the_chosen_photo_provider(
    shared_console: OwnerAtConsole, stack: Stack
) -> None:
    page = shared_console.visitor.get(COMPOSER_PATH)
    values = {**forms_of(page)[0][1], "words": "hills", "provider": "openverse", "find": "yes"}
    reply = shared_console.visitor.client.post(
        COMPOSER_PATH, files={name: (None, value) for name, value in values.items()}
    )
    policy = reply.headers["content-security-policy"]
    [image_rule] = [rule for rule in policy.split("; ") if rule.startswith("img-src")]
    assert image_rule == f"img-src 'self' data: {stack.sandbox_url}"
    text = read_page(reply)
    assert "CC0 1.0</a>" in text
    assert "“Hills”</a> by <a" in text
    thumbnail_url = re.findall(r'<img src="([^"]+)"', text)[0]
    assert httpx2.get(thumbnail_url, timeout=30).headers["content-type"] == "image/jpeg"
    text, fields = click_button(
        shared_console, page, {"find": "yes"}, 502, title="Kept", words="error-500"
    )
    assert "unsplash returned no usable response." in text.lower()
    assert (fields["title"], fields["words"]) == ("Kept", "error-500")


def test_console_composer_shows_the_price_and_reports_insufficient_credits(
    priced_composer: ComposerStack,
) -> None:
    priced_composer.steer(None)
    form_values = build_unique_post()
    with at_console(priced_composer.stack) as owner:
        text, fields = compose(owner, {"write": "all"}, 402, **form_values)
        assert "This costs 2.5 credits, but you have only 0." in text
        assert "costs 2.5 credits. “Generate all” needs two calls and costs 5 credits." in text
        assert fields["content"] == form_values["content"]
        credits.grant(priced_composer.stack, owner.owner.user_id, "7.5")
        text, fields = compose(owner, {"write": "all"}, **form_values)
        assert text.count("Written by the model steered.") == 1
        assert credits.balance(owner.api) == Decimal("2.5")
        # Generating the same texts again costs nothing.
        text, _ = compose(owner, {"write": "all"}, **form_values)
        assert text.count("Written earlier by the model steered.") == 1
        assert credits.balance(owner.api) == Decimal("2.5")
        charges = [each for each in credits.entries(owner.api) if each["action"] == "consume"]
        assert {each["meta"]["wrote"] for each in charges} == {"metadata", "tweets"}
        # The button *Generate all* makes two paid calls, but the balance is enough for only one.
        # The page shows the texts from one call, and an error for the call that wasn't paid.
        text, fields = compose(owner, {"write": "all"}, 402, **build_unique_post())
        assert "This costs 2.5 credits, but you have only 0." in text
        assert ("slug" in fields) != ("tweet_1" in fields)
        credits.grant(priced_composer.stack, owner.owner.user_id, str(CALL_PRICE))
        priced_composer.steer("refuses")
        text, _ = compose(owner, {"write": "tweets"}, **build_unique_post())
        assert "Written without a language model, because the model didn’t answer." in text
