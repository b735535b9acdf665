import pytest

from services.composer.offline import writer
from services.composer.text.markup import parse_post
from services.composer.text.post import MetadataField, Post

HASH = "89abcdef" * 8
NEWS_SENTENCES = (
    "The council of Harwick voted on Monday to close the old bridge over the river Wye. ",
    "The bridge, which was built in 1884, carries twelve thousand cars on a working day. ",
    "“I cross the bridge each day, and I will miss the old bridge,” said Anna Lund. ",
    "The old bridge over the river will be the longest bridge that the council ever closed. ",
)


def write_summary(title: str, content: str) -> str:
    plain = parse_post(Post(title, content))
    return writer.write_metadata(plain, frozenset({MetadataField.SUMMARY}), HASH).summary or ""


def write_tags(title: str, content: str) -> tuple[str, ...]:
    plain = parse_post(Post(title, content))
    return writer.write_metadata(plain, frozenset({MetadataField.TAGS}), HASH).tags or ()


def test_offline_summary_consists_of_first_sentences_of_the_post() -> None:
    assert (
        write_summary("Old bridge closes", "\n\n".join(NEWS_SENTENCES))
        == "".join(NEWS_SENTENCES[:3]).strip()
    )


def test_offline_summary_omits_captions_between_sentences() -> None:
    content = "\n\n".join(
        ["A picture of the bridge", NEWS_SENTENCES[0], "Photo: the council", NEWS_SENTENCES[1]]
    )
    assert write_summary("Old bridge closes", content) == "".join(NEWS_SENTENCES[:2]).strip()


@pytest.mark.parametrize(
    "opening",
    [
        "Good morning, neighbours!",
        "Dear readers,",
        "Buenos días:",
        "Who will miss it?",
        "I read every letter that came in last week.",
    ],
)
def test_offline_summary_omits_greetings_questions_and_anecdotes(opening: str) -> None:
    assert (
        write_summary("", "\n\n".join([opening, *NEWS_SENTENCES[:2]]))
        == "".join(NEWS_SENTENCES[:2]).strip()
    )


@pytest.mark.parametrize("opening", ["I like bread and soup.", "Who likes bread and soup?"])
def test_post_with_only_a_question_or_anecdote_still_gets_a_summary(opening: str) -> None:
    assert write_summary("", opening) == opening


# Maps each language to three sentences: a statement, a sentence that refers to that statement, and
# a sentence that is clear without the others.
BRIDGE_SENTENCES = {
    "en": (
        "The old bridge over the river Wye is closed to all traffic from Monday.",
        "However, the council of the town has not yet found money for a new one.",
        "This week the council of the town votes on the new bridge.",
    ),
    "de": (
        "Die alte Brücke über den Fluss ist ab Montag für alle Autos gesperrt.",
        "Er hat in der Stadt noch niemandem gesagt, wer die neue bezahlen soll.",
        "Es gibt in der Stadt noch keinen Plan für eine neue Brücke.",
    ),
    "fr": (
        "Le vieux pont sur la rivière est fermé à toutes les voitures depuis lundi.",
        "Elle n'a pas encore trouvé l'argent pour en construire un autre dans la ville.",
        "Cette semaine, le conseil de la ville vote la construction du nouveau pont.",
    ),
    "es": (
        "El viejo puente sobre el río está cerrado a todos los coches desde el lunes.",
        "Sin embargo, el ayuntamiento todavía no tiene dinero para construir otro.",
        "Esta semana el ayuntamiento de la ciudad vota la obra del puente nuevo.",
    ),
    "it": (
        "Il vecchio ponte sul fiume è chiuso a tutte le automobili da lunedì mattina.",
        "Tuttavia il comune non ha ancora trovato i soldi per costruirne un altro.",
        "Questa settimana il consiglio della città vota i lavori del nuovo ponte.",
    ),
    "pt": (
        "A velha ponte sobre o rio está fechada a todos os carros desde segunda-feira.",
        "No entanto, a câmara ainda não tem dinheiro para construir uma outra ponte.",
        "Esta semana a câmara da cidade vota as obras da nova ponte sobre o rio.",
    ),
    "zh": (
        "河上的老桥从星期一起对所有汽车关闭。",
        "但是市政府还没有钱造新桥。",
        "市议会在星期三投票。",
    ),
    "ja": (
        "川にかかる古い橋は月曜日からすべての車に閉鎖されます。",
        "しかし町には新しい橋を造るお金がまだありません。",
        "町の議会は水曜日に投票します。",
    ),
}
for_each_language = pytest.mark.parametrize(
    ("statement", "back_reference", "independent"), BRIDGE_SENTENCES.values(), ids=BRIDGE_SENTENCES
)


@for_each_language
def test_summary_keeps_a_back_reference_next_to_the_sentence_that_it_refers_to(
    statement: str, back_reference: str, independent: str
) -> None:
    assert back_reference in write_summary("", f"{statement} {back_reference} {independent}")


@for_each_language
def test_summary_omits_a_back_reference_without_the_sentence_that_it_refers_to(
    statement: str, back_reference: str, independent: str
) -> None:
    summary = write_summary(
        "", f"{back_reference}\n\n{statement}\n\nA caption\n\n{back_reference}\n\n{independent}"
    )
    assert back_reference not in summary
    assert statement in summary
    assert independent in summary


@for_each_language
def test_offline_tweets_never_start_with_a_back_reference(
    statement: str, back_reference: str, independent: str
) -> None:
    tweets = writer.write_tweets(
        parse_post(Post("", f"{statement} {back_reference} {independent}"))
    )
    assert tweets == (statement, independent)


def test_back_reference_phrase_is_recognised_only_by_all_its_words() -> None:
    until_then = "Until then the buses of the town go round by the mill."
    until_monday = "Until Monday the buses of the town cross by the ferry."
    summary = write_summary(
        "", f"{until_then}\n\n{NEWS_SENTENCES[0]}\n\nA caption\n\n{until_monday}"
    )
    assert summary == f"{NEWS_SENTENCES[0]}{until_monday}"


@pytest.mark.parametrize(
    ("title", "tweet"),
    [
        ("The harbour in November", "The harbour is quiet in November."),
        ("Letter 7", "Letter 7: The harbour is quiet in November."),
    ],
)
def test_tweet_starts_with_the_title_unless_its_sentence_repeats_the_title(
    title: str, tweet: str
) -> None:
    assert writer.write_tweets(parse_post(Post(title, "The harbour is quiet in November."))) == (
        tweet,
    )


@pytest.mark.parametrize("item", ["- ", "1. ", "• "])
@pytest.mark.parametrize("greeting", ["", "Good morning, neighbours!\n\n"])
def test_summary_contains_no_list_items_and_no_sentence_that_introduces_them(
    item: str, greeting: str
) -> None:
    list_items = "\n\n".join(f"{item}{sentence}" for sentence in NEWS_SENTENCES[1:])
    introduction = "The council of Harwick names three of its reasons:"
    content = f"{greeting}{NEWS_SENTENCES[0]}\n\n{introduction}\n\n{list_items}"
    summary = write_summary("Old bridge closes", content)
    assert NEWS_SENTENCES[0].strip() in summary
    assert not any(sentence.strip() in summary for sentence in NEWS_SENTENCES[1:])
    assert not summary.endswith(":")


@pytest.mark.parametrize(
    "items", ["– milk\n\n– eggs\n\n– bread", "— milk\n— eggs", "― milk ― eggs"]
)
def test_summary_contains_no_list_items_that_begin_with_a_dash(items: str) -> None:
    summary = write_summary("Old bridge closes", f"{NEWS_SENTENCES[0]}\n\n{items}")
    assert summary == NEWS_SENTENCES[0].strip()


@pytest.mark.parametrize("dash", ["–", "—", "―"])
@pytest.mark.parametrize(
    "line",
    [
        "Nobody crosses a river twice.\n\n{} Anna Lind",
        "> Nobody crosses a river twice.\n> {} Anna Lind",
        "<blockquote>Nobody crosses a river twice.</blockquote>\n\n{} Anna Lind, ferrywoman",
        "{} Nobody crosses a river twice, said the ferrywoman.\n\n{} Or three times.",
    ],
)
def test_quoted_person_and_dialogue_do_not_end_the_summary(line: str, dash: str) -> None:
    content = f"{NEWS_SENTENCES[0]}\n\n{line.replace('{}', dash)}\n\n{NEWS_SENTENCES[1]}"
    summary = write_summary("Old bridge closes", content)
    assert summary.startswith(NEWS_SENTENCES[0].strip())
    assert summary.endswith(NEWS_SENTENCES[1].strip())


def test_post_consisting_only_of_lists_still_gets_a_summary() -> None:
    items = "\n".join(f"<li>{sentence}" for sentence in NEWS_SENTENCES)
    assert write_summary("Old bridge closes", f"<ul>{items}</ul>")


def test_tags_keep_the_capitalisation_of_the_post() -> None:
    content = (
        "Lisbon has new trams. The trams of Lisbon show their place on an iPhone. "
        "An iPhone asks OpenAI for the next tram, and OpenAI answers. "
        "Open Source runs in each tram, and each stop in Lisbon likes Open Source. "
        "Social media are full of it. Media like it, and so do social media."
    )
    tags = write_tags("TRAMS AND TELEPHONES", content)
    assert {"Lisbon", "iPhone", "OpenAI"} <= set(tags)
    assert {"trams", "tram"} & set(tags)
    assert not {"lisbon", "Trams", "TRAMS", "iphone", "openai"} & set(tags)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Social media grow. Social media shrink. We read social news.", "social media"),
        ("Home Depot sells. Home Depot grows. Home Depot shrinks.", "Home Depot"),
    ],
)
def test_tag_at_sentence_starts_takes_its_capitalisation_from_other_occurrences(
    content: str, expected: str
) -> None:
    assert expected in write_tags("", content)


@pytest.mark.parametrize(
    ("content", "forms"),
    [
        ("A tram is late. Trams are late. Two trams came by the river.", {"tram", "trams"}),
        ("A woman came. Women came. The women left by the river.", {"woman", "women"}),
        # The post has so few words that any word becomes a tag.
        ("The tool. The tools. Tools.", {"tool", "tools"}),
        ("Die Brücke ist alt. Zwei Brücken führen über den Fluss.", {"brücke", "brücken"}),
    ],
)
def test_singular_and_plural_of_a_word_become_one_tag(content: str, forms: set[str]) -> None:
    tags = write_tags("", content)
    assert len(forms & {tag.casefold() for tag in tags}) == 1
