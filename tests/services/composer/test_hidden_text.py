"""Tests that the composer ignores hidden text, such as a preheader, and reads all visible text."""

import pytest

from services.composer.offline import writer
from services.composer.text.markup import parse_post
from services.composer.text.post import MetadataField, Post

VISIBLE = "The harbour of Lisbon reopened on Monday."
PREHEADER = "Only for inboxes."

HIDING_STYLES = [
    "display:none",
    "DISPLAY : None ! important",
    "color:red;display:none;",
    "display:/* for all */none",
    "display:none !important;display:block",
    "visibility:hidden",
    "visibility: collapse",
    "mso-hide:all",
    "max-height:0; overflow:hidden; mso-hide:all;",
    "max-height:0px;overflow:hidden",
    "height:0;overflow:hidden",
    "width:0;overflow-x:hidden",
    "opacity:0",
    "opacity: 0.0",
    "opacity:0%",
    "font-size:0",
    "font-size:0px;line-height:0",
    "font-size: 0.0em !important",
    "font:0/0 a",
    "position:absolute;left:-9999px",
    "text-indent:-9999px",
    "clip:rect(0, 0, 0, 0)",
    "clip-path: inset(50%)",
]
SHOWING_STYLES = [
    "opacity:0.5",
    "opacity:.05",
    "max-height:300px;overflow:hidden",
    "max-height:0",
    "height:0",
    "min-height:0;overflow:hidden",
    "overflow:hidden",
    "font-size:0.9em",
    "font-size:10px;margin:0;padding:0",
    "font:12px/0 a",
    "line-height:0",
    "display:none;display:block",
    "visibility:visible",
    "text-indent:-1em",
    "background:url(display:none)",
]


@pytest.mark.parametrize("style", HIDING_STYLES)
def test_composer_omits_text_hidden_by_css(style: str) -> None:
    for html in (
        f'<div style="{style}">{PREHEADER}</div><p>{VISIBLE}</p>',
        f'<p><span style="{style}">{PREHEADER} <b>{PREHEADER}</b></span>{VISIBLE}</p>',
        f'<table><tr><td style="{style}"><div>{PREHEADER}</div><td>{VISIBLE}</table>',
        f'Dear all,\n\n<div style="{style}">{PREHEADER}</div>\n\n{VISIBLE}',
    ):
        text = parse_post(Post("", html)).text
        assert VISIBLE in text
        assert PREHEADER not in text


@pytest.mark.parametrize("style", SHOWING_STYLES)
def test_composer_keeps_text_that_css_leaves_visible(style: str) -> None:
    html = f'<div style="{style}">Of today.</div><p>{VISIBLE}</p>'
    assert parse_post(Post("", html)).paragraphs == ("Of today.", VISIBLE)


@pytest.mark.parametrize(
    ("html", "paragraphs"),
    [
        (f"<p hidden>{PREHEADER}</p><p>{VISIBLE}</p>", (VISIBLE,)),
        (f"<div aria-hidden=true>Of today.</div><p>{VISIBLE}</p>", ("Of today.", VISIBLE)),
        (f"<div class=hidden data-hidden>Of today.</div>{VISIBLE}", ("Of today.", VISIBLE)),
        # Mails set the font size of table cells to 0, and set another size for the text inside.
        (f"<div style='font-size:0'><p style='font-size:13px'>{VISIBLE}</p></div>", (VISIBLE,)),
        (f"<div style='font-size:0'><p style='font-size:2em'>x</p></div>{VISIBLE}", (VISIBLE,)),
        (f"<div style='visibility:hidden'>x<b style='visibility:visible'>{VISIBLE}</b></div>",
         (VISIBLE,)),
        (f"<div hidden>x<div>x</div>x</div><p>{VISIBLE}</p>", (VISIBLE,)),
        (f"<br hidden><img hidden><input style='display:none'><p>{VISIBLE}</p>", (VISIBLE,)),
        (f"<div hidden/><script src=x/><p>{VISIBLE}</p>", (VISIBLE,)),
        # The end tag of an element is missing.
        (f"<p hidden>{PREHEADER}<p>{VISIBLE}", (VISIBLE,)),
        (f"<div hidden>{PREHEADER}<p>{VISIBLE}</p>", (VISIBLE,)),
        (f"<body><div><span hidden>{PREHEADER}<p>{VISIBLE}</p></div></body>", (VISIBLE,)),
        (f"<ul><li hidden>{PREHEADER}<li>Salt</ul><p>{VISIBLE}</p>", ("Salt", VISIBLE)),
        (f"<p hidden>{PREHEADER}</div></p><p>{VISIBLE}</p>", (VISIBLE,)),
        (f"<nav>Home<p>{VISIBLE}</p>", (VISIBLE,)),
    ],
)  # fmt: skip
def test_hidden_html_element_hides_only_its_own_text(
    html: str, paragraphs: tuple[str, ...]
) -> None:
    assert parse_post(Post("", html)).paragraphs == paragraphs


def test_summary_and_tweets_start_with_visible_text_rather_than_hidden_preheader() -> None:
    html = f"<div style='max-height:0;overflow:hidden'>{PREHEADER}</div><p>{VISIBLE}</p>"
    plain = parse_post(Post("Harbour", html))
    summary = writer.write_metadata(plain, frozenset({MetadataField.SUMMARY}), "0" * 64).summary
    assert summary == VISIBLE
    assert writer.write_tweets(plain)[0].startswith(VISIBLE)
