"""The composer's page: what is written, who wrote it, what it costs, and photos with credit."""

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
from tests.support.composer.composing import (
    METADATA,
    TWEETS,
    body,
    find_metadata_faults,
    find_tweets_faults,
    fresh,
)
from tests.support.composer.modelling import PRICE, Modelled, post
from tests.support.credits import credits
from tests.support.http.replies import data
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    calls_of,
    forms_of,
    shown,
    wrong_beside,
)

PAGE = "/console/composer"


def compose(
    owner: OwnerAtConsole, button: dict[str, str], status: int = 200, /, **typed: str
) -> tuple[str, dict[str, str]]:
    """The page after a press of this button, and what its form holds then."""
    opened = owner.visitor.get(PAGE)
    return press_button(owner, opened, button, status, **typed)


def press_button(
    owner: OwnerAtConsole,
    opened: httpx2.Response,
    button: dict[str, str],
    status: int = 200,
    /,
    **typed: str,
) -> tuple[str, dict[str, str]]:
    [(action, values)] = forms_of(opened)
    assert action == PAGE
    # As a browser sends it: each field is a part.
    parts = {name: (None, value) for name, value in {**values, **typed, **button}.items()}
    reply = owner.visitor.client.post(PAGE, files=parts)
    return shown(reply, status), forms_of(reply)[0][1]


def written_of(fields: dict[str, str], *names: str) -> dict[str, str]:
    return {name: fields[name].replace("\r\n", "\n") for name in names}


def tweets_of(fields: dict[str, str]) -> dict[str, str]:
    """Join the tweets in the form fields, as in the API's field `tweets`."""
    texts = [text for name, text in sorted(fields.items()) if name.startswith("tweet_")]
    return {"tweets": "\n\n".join(texts)}


def fields_of(new_post: Post) -> dict[str, str]:
    return {"title": new_post.title, "content": new_post.content}


def test_console_composer_writes_the_same_texts_as_the_api_and_names_the_writer(
    shared_console: OwnerAtConsole,
) -> None:
    text = shared_console.see(PAGE)
    assert "costs" not in text
    new_post = fresh()
    text, fields = compose(shared_console, {"write": "all"}, **fields_of(new_post))
    assert find_metadata_faults(new_post, written_of(fields, "slug", "summary", "tags")) == []
    assert find_tweets_faults(new_post, tweets_of(fields)) == []
    assert text.count("Written without a language model") == 1
    assert (fields["title"], fields["content"]) == (new_post.title, new_post.content)
    reply = shared_console.api.post(METADATA, json=body(new_post))
    assert data(reply) == written_of(fields, "slug", "summary", "tags")
    assert data(shared_console.api.post(TWEETS, json=body(new_post))) == tweets_of(fields)
    [call] = calls_of(text)
    assert call.body["title"] == new_post.title


def test_console_composer_writes_a_single_part_and_keeps_all_other_input(
    shared_console: OwnerAtConsole,
) -> None:
    new_post = fresh()
    text, fields = compose(shared_console, {"write": "slug"}, **fields_of(new_post))
    assert fields["slug"]
    assert "summary" not in fields
    changed = {**fields, "slug": "my-own", "title": "<b>Another</b>"}
    opened = shared_console.visitor.get(PAGE)
    text, fields = press_button(shared_console, opened, {"write": "tags"}, **changed)
    assert (fields["slug"], fields["title"]) == ("my-own", "<b>Another</b>")
    assert fields["tags"]
    assert "<b>Another" not in text


def test_console_composer_shows_errors_next_to_their_fields_and_keeps_the_input(
    shared_console: OwnerAtConsole,
) -> None:
    text, fields = compose(
        shared_console, {"write": "all"}, 422, title=" ", content="\r\n", words="kept"
    )
    assert wrong_beside(text, "content") == "Enter a title or paste a post."
    assert fields["words"] == "kept"
    text, fields = compose(shared_console, {"write": "slug"}, 422, title="x" * 501, content="kept")
    assert "500" in wrong_beside(text, "title")
    assert fields["content"] == "kept"
    text, _ = compose(shared_console, {"find": "yes"}, 422, content="kept", words=" ")
    assert wrong_beside(text, "words")
    # Enter in any field presses the first button, which asks for nothing.
    text, fields = compose(shared_console, {"enter": "yes"}, title="By the enter key")
    assert fields["title"] == "By the enter key"
    assert "Written by" not in text


def test_console_composer_finds_and_credits_and_uses_stock_photos(
    shared_console: OwnerAtConsole, stack: Stack
) -> None:
    words = fresh().content[-30:]
    plain = shared_console.visitor.get(PAGE).headers["content-security-policy"]
    assert stack.sandbox_url not in plain
    opened = shared_console.visitor.get(PAGE)
    reply, fields = press_button(shared_console, opened, {"find": "yes"}, title="Kept", words=words)
    assert reply.count("<figure") == 0
    assert fields["title"] == "Kept"
    images = re.findall(r'<img src="([^"]+)"', reply)
    assert len(images) == 12
    assert all(url.startswith(f"{stack.sandbox_url}{UNSPLASH_PREFIX}/pictures/") for url in images)
    credit = html.unescape(re.findall(r"<p>(Photo by .*?)</p>", reply)[0])
    assert ">Pressroom Sandbox</a> on <a" in credit
    assert credit.count("utm_source=pressroom&utm_medium=referral") == 2
    endpoints = re.findall(r'name="use" value="([^"]+)"', reply)
    # The photos stay while other things are done.
    again, fields = press_button(
        shared_console, opened, {"write": "slug"}, **{**fields, "content": "Bread."}
    )
    assert re.findall(r'<img src="([^"]+)"', again) == images
    used = {"use": html.unescape(endpoints[0])}
    again, fields = press_button(shared_console, opened, used, **fields)
    assert fields["used_url"].startswith(f"{stack.sandbox_url}{UNSPLASH_PREFIX}/pictures/")
    assert fields["slug"]
    figure = html.unescape(re.findall(r'id="figure" value="([^"]+)"', again)[0])
    assert figure.startswith(f'<figure><img src="{html.escape(fields["used_url"])}"')
    assert "Pressroom Sandbox</a> on <a" in figure
    text, _ = press_button(shared_console, opened, {"page": "2"}, **fields)
    assert "page 2." in text
    # Page 2 of the search results still shows the chosen photo, but no other photo from page 1.
    assert set(re.findall(r'<img src="([^"]+)"', text)) & set(images) == {images[0]}
    text, fields = press_button(
        shared_console, opened, {"use": "http://127.0.0.1:9/photos/x"}, 400, **fields
    )
    assert fields["title"] == "Kept"


def choose_photo(console: OwnerAtConsole, provider: str) -> tuple[str, dict[str, str]]:
    """Search for photos, and choose the first photo."""
    find = {"find": "yes", "provider": provider, "words": fresh().content[-30:]}
    text, fields = compose(console, find, title="Kept")
    endpoint = html.unescape(re.findall(r'name="use" value="([^"]+)"', text)[0])
    return press_button(console, console.visitor.get(PAGE), {"use": endpoint}, **fields)


def test_console_composer_adds_a_photo_with_its_credit_to_the_images(
    console: OwnerAtConsole,
) -> None:
    text, fields = choose_photo(console, "openverse")
    assert '<button name="add"' in text
    text, fields = press_button(console, console.visitor.get(PAGE), {"add": "yes"}, **fields)
    assert fields["title"] == "Kept"
    [image] = data(console.api.get("/attachments"))["items"]
    assert (
        f'added to <a href="{console.visitor.stack.api_url}/console/images/{image["hash_id"]}"'
        in text
    )
    assert '<button name="add"' not in text
    # On a busy machine, the page doesn't wait until the image is converted.
    path = f"/attachments/{image['hash_id']}"
    eventually(
        lambda: data(console.api.get(path))["status"] == AttachmentStatus.READY,
        what="the copy converted",
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
    opened = console.visitor.get(PAGE)
    text, fields = press_button(console, opened, {"add": "yes"}, 403, **fields)
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
    opened = shared_console.visitor.get(PAGE)
    values = {**forms_of(opened)[0][1], "words": "hills", "provider": "openverse", "find": "yes"}
    reply = shared_console.visitor.client.post(
        PAGE, files={n: (None, v) for n, v in values.items()}
    )
    policy = reply.headers["content-security-policy"]
    [images] = [rule for rule in policy.split("; ") if rule.startswith("img-src")]
    assert images == f"img-src 'self' data: {stack.sandbox_url}"
    text = shown(reply)
    assert "CC0 1.0</a>" in text
    assert "“Hills”</a> by <a" in text
    small = re.findall(r'<img src="([^"]+)"', text)[0]
    assert httpx2.get(small, timeout=30).headers["content-type"] == "image/jpeg"
    text, fields = press_button(
        shared_console, opened, {"find": "yes"}, 502, title="Kept", words="error-500"
    )
    assert "unsplash returned no usable response." in text.lower()
    assert (fields["title"], fields["words"]) == ("Kept", "error-500")


def test_console_composer_shows_the_price_and_reports_insufficient_credits(
    priced_composer: Modelled,
) -> None:
    priced_composer.steer(None)
    typed = post()
    with at_console(priced_composer.stack) as owner:
        text, fields = compose(owner, {"write": "all"}, 402, **typed)
        assert "This costs 2.5 credits, but you have only 0." in text
        assert "costs 2.5 credits. “Generate all” needs two calls and costs 5 credits." in text
        assert fields["content"] == typed["content"]
        credits.grant(priced_composer.stack, owner.owner.user_id, "7.5")
        text, fields = compose(owner, {"write": "all"}, **typed)
        assert text.count("Written by the model steered.") == 1
        assert credits.balance(owner.api) == Decimal("2.5")
        # The same once more costs nothing, whether it is kept or was lost meanwhile.
        text, _ = compose(owner, {"write": "all"}, **typed)
        assert text.count("Written earlier by the model steered.") == 1
        assert credits.balance(owner.api) == Decimal("2.5")
        charges = [each for each in credits.entries(owner.api) if each["action"] == "consume"]
        assert {each["meta"]["wrote"] for each in charges} == {"metadata", "tweets"}
        # There is enough for one of the two: it is given, and the other is told of.
        text, fields = compose(owner, {"write": "all"}, 402, **post())
        assert "This costs 2.5 credits, but you have only 0." in text
        assert ("slug" in fields) != ("tweet_1" in fields)
        credits.grant(priced_composer.stack, owner.owner.user_id, str(PRICE))
        priced_composer.steer("refuses")
        text, _ = compose(owner, {"write": "tweets"}, **post())
        assert "Written without a language model, because the model didn’t answer." in text
