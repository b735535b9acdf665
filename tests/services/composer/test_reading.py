import string
import time

import pytest

from services.composer.text.markup import clean_text, parse_post
from services.composer.text.post import PlainPost, Post
from services.composer.text.words import split_sentences
from tests.support.sizes import sized

# The number of characters in a post with hostile markup.
MARKUP_CHARACTERS = sized(150_000, 1_000_000)
# The maximum CPU time for parsing a post with hostile markup on a very slow machine. Most machines
# parse a hostile post in one to three seconds.
MAX_CPU_SECONDS = 60


def parse_content(content: str, title: str = "") -> PlainPost:
    return parse_post(Post(title, content))


@pytest.mark.parametrize(
    ("content", "paragraphs"),
    [
        ("*Text*, **marks**, `code` and ~~not~~ this.", ("Text, marks, code and this.",)),
        ("One\nline.\n\nTwo.", ("One line.", "Two.")),
        ("- first\n- [x] second\n\n> quoted", ("first", "second", "quoted")),
        ("Before\n\n```\ncode\n```\n\n|a|b|\n|-|-|\n|1|2|\n\nAfter", ("Before", "After")),
        ("A note.[^1]\n\n[^1]: Not this.", ("A note.",)),
        ("[text](https://a.example 'title') ![picture](b.png) end", ("text end",)),
        ("AT&amp;T, &copy; and &lt;b&gt;", ("AT&T, © and",)),
        ("\\*no stars\\* and &amp;lt;i&amp;gt;twice&amp;lt;/i&amp;gt;", ("no stars and twice",)),
        ("<p>One</p><p>Two<br>lines</p>", ("One", "Two lines")),
        ("<p>a</p><script>alert(1)</script><style>p{}</style><!-- no --><p>b</p>", ("a", "b")),
        ("<p>In **html** [x](https://a.example)</p>", ("In html x",)),
        ("<div>\n\n        <p>indented</p>\n\n        <p>html</p>\n</div>", ("indented", "html")),
        ("<p style='display: none'>preview</p><p hidden>no</p><p>yes</p>", ("yes",)),
        ("<div align=center>logo</div>\n\nThen *Markdown*.", ("logo", "Then Markdown.")),
        ("<p>unclosed <b>tags <i>here", ("unclosed tags here",)),
        ("**中文。**后面\n下一行", ("中文。后面下一行",)),
        ("turned&amp;#x202e; zero&amp;#x200b;width", ("turned zerowidth",)),
        # This text contains the two private-use characters with which the composer marks URLs.
        ("https://a.example &amp;#xe000;7&amp;#xe001; end", ("https://a.example end",)),
        ("nul\x00, half\ud800, zero\u200bwidth, turned\u202e", ("nul, half, zerowidth, turned",)),
        ("नमस्ते می\u200cخواهم 👩\u200d🚀", ("नमस्ते می\u200cخواهم 👩\u200d🚀",)),
    ],
)  # fmt: skip
def test_composer_reads_post_text_without_markup(content: str, paragraphs: tuple[str, ...]) -> None:
    assert parse_content(content).paragraphs == paragraphs


def test_composer_separates_headings_from_paragraphs() -> None:
    plain = parse_content("# One **two**\n\nText.\n\n<h2>Three</h2>")
    assert plain.headings == ("One two", "Three")
    assert plain.paragraphs == ("Text.",)


def test_composer_removes_markup_from_the_title() -> None:
    assert (
        parse_content("x", title="<b>Salt</b> &amp; *pepper*\n2024.").title == "Salt & pepper 2024."
    )


def test_composer_reads_text_inside_table_based_mails() -> None:
    plain = parse_content("<table><tr><td><h1>Hi</h1><p>All is in a table.</p></td></tr></table>")
    assert plain.paragraphs == ("All is in a table.",)


def test_composer_collects_only_web_links_from_text_and_anchors() -> None:
    plain = parse_content(
        "See https://a.example/x_(y)?b=c&d=e. [one](https://b.example/?p=1&amp;q=2) "
        '<a href="https://c.example">two</a> [no](javascript:alert(1)) [no](/relative) <ftp://d.example>'
    )
    assert plain.links == {
        "https://a.example/x_(y)?b=c&d=e",
        "https://b.example/?p=1&q=2",
        "https://c.example",
    }


def test_composer_collects_mentions_but_not_email_addresses() -> None:
    plain = parse_content("Thanks @Anna, ＠bob and me@mail.example; code@x")
    assert plain.mentions == {"@anna", "@bob"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    "[ ![ []( ** *a_ ` > - <div> <b> <font><p> <table><td> <!-- <![CDATA[ <a &amp; & <p>a</p>\n "
    "<a|href=' http://a @a a. a- \\ ~~a |a \u0301 x".split(" "),
)
def test_hostile_markup_of_any_length_is_parsed_within_the_time_limit(piece: str) -> None:
    piece = piece.replace("|", " ")
    start = time.process_time()
    plain = parse_content((piece * (MARKUP_CHARACTERS // len(piece) + 1))[:MARKUP_CHARACTERS])
    assert time.process_time() - start < MAX_CPU_SECONDS
    assert all(clean_text(str(text)) == text for text in plain.paragraphs[:3])


@pytest.mark.parametrize(
    "mark",
    [*string.punctuation, "{{a", "[a ", "{%", "&a", "<!", "](", "a.", "\u0301\u0316", "é"],
)
def test_paragraph_parsing_time_does_not_grow_quadratically(mark: str) -> None:
    """With quadratic time, a paragraph of four times the length would take 16 times as long."""

    def measure_seconds(length: int) -> float:
        # Emphasis such as ``**a**`` makes the reader parse the paragraph a second time.
        post = Post("", f"**a** {mark * (length // len(mark))}")
        return min(_processor_seconds(post) for _ in range(3))

    long_seconds = measure_seconds(19_000)
    assert long_seconds < 0.1 or long_seconds < 10 * measure_seconds(4_750)


def _processor_seconds(post: Post) -> float:
    start = time.process_time()
    plain = parse_post(post)
    for paragraph in plain.paragraphs:
        split_sentences(paragraph, "da")
    return time.process_time() - start


def test_html_tag_with_very_many_attributes_is_parsed_within_the_time_limit() -> None:
    start = time.process_time()
    parse_content(
        "<a " + " ".join(f"x{number}=1" for number in range(MARKUP_CHARACTERS // 10)) + ">text</a>"
    )
    assert time.process_time() - start < MAX_CPU_SECONDS
