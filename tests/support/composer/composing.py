"""Posts for tests of the composer, and checks of the composer's answers."""

import time
from typing import Any

import httpx2

from services.composer import rules
from services.composer.text import markup
from services.composer.text.post import MetadataField, Post, PostMetadata

METADATA = "/composer/metadata"
TWEETS = "/composer/generate-tweets"

# A post in each writing system that the composer supports, and posts with markup.
POSTS = {
    "english": Post(
        "How we bake bread",
        "# Bread\n\nWe bake **bread** every morning in a [small shop](https://example.com/shop). "
        "The flour comes from a mill by the river. The dough rests for a night, and @anna shapes "
        "the loaves at five.\n\n- flour\n- water\n- salt\n\nSourdough needs patience and warmth.",
    ),
    "german": Post(
        "Über das Backen",
        "<p>Wir backen jeden Morgen <b>Brot</b>. Das Mehl kommt aus einer Mühle am Fluss. Der Teig "
        "ruht eine Nacht, und danach wird der Laib geformt.</p><script>alert(1)</script>",
    ),
    "russian": Post(
        "Как мы печём хлеб",
        "Мы печём хлеб каждое утро. Мука приходит с мельницы у реки. Тесто отдыхает всю ночь, а "
        "потом пекарь лепит буханки.",
    ),
    "chinese": Post(
        "我们怎样烤面包",
        "我们每天早上烤面包。面粉来自河边的磨坊。面团休息一个晚上，然后面包师把它做成面包。",
    ),
    "title only": Post("Only a title", ""),
    "content only": Post("", "Only some content."),
    "wordless": Post("…", "!!! ??? ... --- 。。。"),
    "markup only": Post("", "<div><br><img src='a.png'></div>\n\n***\n\n---"),
}


def build_post_body(post: Post, **more: Any) -> dict[str, Any]:
    return {"title": post.title, "content": post.content, **more}


def make_unique_post(post: Post = POSTS["english"]) -> Post:
    return Post(post.title, f"{post.content}\n\nThis is issue {time.monotonic_ns()}.")


def request_composer(
    client: httpx2.Client, path: str, post: Post, **options: Any
) -> httpx2.Response:
    return client.post(path, json=build_post_body(post), **options)


def find_metadata_faults(post: Post, answer: dict[str, str], *fields: MetadataField) -> list[str]:
    """Check the metadata from the composer, and return a text for each violated rule."""
    expected_fields = frozenset(fields or MetadataField)
    if set(answer) != set(expected_fields):
        return [f"it has {sorted(answer)}"]
    tags = tuple(answer["tags"].split(",")) if answer.get("tags") else ()
    metadata = PostMetadata(
        answer.get("slug"), answer.get("summary"), tags if "tags" in answer else None
    )
    return rules.find_metadata_faults(markup.parse_post(post), metadata, expected_fields)


def find_tweets_faults(post: Post, answer: dict[str, str]) -> list[str]:
    """Check the tweets from the composer, and return a text for each violated rule."""
    if set(answer) != {"tweets"}:
        return [f"it has {sorted(answer)}"]
    return rules.find_tweets_faults(markup.parse_post(post), answer["tweets"].split("\n\n"))
