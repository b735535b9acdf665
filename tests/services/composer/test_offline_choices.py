"""What the offline writer chooses: sentences for summaries, and tags as the post writes them."""

import pytest

from services.composer import offline
from services.composer.offline.document import document_of
from services.composer.offline.news import opens_as_news
from services.composer.post import MetadataField, Post
from services.composer.text.markup import read

HASH = "89abcdef" * 8
NEWS = (
    "The council of Harwick voted on Monday to close the old bridge over the river Wye. ",
    "The bridge, which was built in 1884, carries twelve thousand cars on a working day. ",
    "“I cross the bridge each day, and I will miss the old bridge,” said Anna Lund. ",
    "The old bridge over the river will be the longest bridge that the council ever closed. ",
)


def summary(title: str, content: str) -> str:
    plain = read(Post(title, content))
    return offline.metadata(plain, frozenset({MetadataField.SUMMARY}), HASH).summary or ""


def tags(title: str, content: str) -> tuple[str, ...]:
    plain = read(Post(title, content))
    return offline.metadata(plain, frozenset({MetadataField.TAGS}), HASH).tags or ()


def is_news(content: str, title: str = "") -> bool:
    return opens_as_news(document_of(read(Post(title, content))))


def test_news_are_summed_up_by_their_first_sentences() -> None:
    assert summary("Old bridge closes", "\n\n".join(NEWS)) == "".join(NEWS[:3]).strip()


def test_captions_between_the_first_sentences_are_left_out() -> None:
    content = "\n\n".join(["A picture of the bridge", NEWS[0], "Photo: the council", NEWS[1]])
    assert summary("Old bridge closes", content) == "".join(NEWS[:2]).strip()


@pytest.mark.parametrize(
    "opening",
    [
        "Good morning, neighbours!",
        "Dear readers,",
        "Buenos días:",
        "I read every letter that came in last week.",
        "Last week our bread failed, all of it.",
        "Heute schreiben wir einmal in eigener Sache.",
        "Сегодня я проснулся от звонка, которого не слышал сорок лет.",
        "上周六早上六点，我跟着母亲去了一趟清河菜市场。",
    ],
)
def test_letters_open_otherwise_than_news(opening: str) -> None:
    assert not is_news("\n\n".join([opening, opening, "x. " * 30]))


@pytest.mark.parametrize(
    "opening",
    [
        NEWS[0],
        "“I cross the bridge each day,” said Anna Lund.",
        # `mes` is `my` in French.
        "El puente cierra este mes, y los vecinos de la ciudad no saben nada de ello.",
    ],
)
def test_news_are_known_by_their_opening(opening: str) -> None:
    assert is_news(opening + "\n\n" + "El puente cierra. " * 3)


def test_a_post_with_sections_is_read_as_a_whole() -> None:
    assert not is_news(f"{NEWS[0]}\n\n## One\n\n{NEWS[1]}\n\n## Two\n\n{NEWS[3]}")


@pytest.mark.parametrize("item", ["- ", "1. ", "• "])
@pytest.mark.parametrize("greeting", ["", "Good morning, neighbours!\n\n"])
def test_a_summary_ends_in_no_list(item: str, greeting: str) -> None:
    listed = "\n\n".join(f"{item}{sentence}" for sentence in NEWS[1:])
    content = (
        f"{greeting}{NEWS[0]}\n\nThe council of Harwick names three of its reasons:\n\n{listed}"
    )
    found = summary("Old bridge closes", content)
    assert NEWS[0].strip() in found
    assert not any(sentence.strip() in found for sentence in NEWS[1:])
    assert not found.endswith(":")


def test_a_post_of_lists_alone_still_has_a_summary() -> None:
    items = "\n".join(f"<li>{sentence}" for sentence in NEWS)
    assert summary("Old bridge closes", f"<ul>{items}</ul>")


def test_tags_keep_the_writing_of_the_post() -> None:
    content = (
        "Lisbon has new trams. The trams of Lisbon show their place on an iPhone. "
        "An iPhone asks OpenAI for the next tram, and OpenAI answers. "
        "Open Source runs in each tram, and each stop in Lisbon likes Open Source. "
        "Social media are full of it. Media like it, and so do social media."
    )
    found = tags("TRAMS AND TELEPHONES", content)
    assert {"Lisbon", "iPhone", "OpenAI"} <= set(found)
    assert {"trams", "tram"} & set(found)
    assert not {"lisbon", "Trams", "TRAMS", "iphone", "openai"} & set(found)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Social media grow. Social media shrink. We read social news.", "social media"),
        ("Home Depot sells. Home Depot grows. Home Depot shrinks.", "Home Depot"),
    ],
)
def test_a_phrase_that_only_begins_sentences_has_its_first_word_as_elsewhere(
    content: str, expected: str
) -> None:
    assert expected in tags("", content)


@pytest.mark.parametrize(
    ("content", "forms"),
    [
        ("A tram is late. Trams are late. Two trams came by the river.", {"tram", "trams"}),
        ("A woman came. Women came. The women left by the river.", {"woman", "women"}),
        # So few words that any will do.
        ("The tool. The tools. Tools.", {"tool", "tools"}),
        ("Die Brücke ist alt. Zwei Brücken führen über den Fluss.", {"brücke", "brücken"}),
    ],
)
def test_singular_and_plural_are_one_tag(content: str, forms: set[str]) -> None:
    found = tags("", content)
    assert len(forms & {tag.casefold() for tag in found}) == 1
