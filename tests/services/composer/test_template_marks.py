"""Tests that the composer removes shortcodes and template tags, but keeps brackets in the text."""

import pytest

from services.composer import rules
from services.composer.offline import writer
from services.composer.text.markup import clean_text, parse_post
from services.composer.text.post import MetadataField, Post
from services.composer.text.template_marks import remove_marks

TEXT = "The harbour of Lisbon reopened on Monday."

TEMPLATE_TAGS = """\
[et_pb_section fb_built="1"]
[/et_pb_section]
[vc_row css=".vc_custom{margin:0}"]
[fusion_text]
[gallery ids="1,2"]
[gallery ids=”1,2″]
[caption id='a' width=300]
[my-form title="Book [now]" /]
[contact-form-7 id=12]
[subscriber:firstname | default:reader]
[current-user:name]
[firstname,fallback=there]
[First Name]
[FIRST NAME%%friend]
[[first_name]]
[[data:firstname:"friend"]]
[[FIRSTNAME OR "friend"]]
[%first_name | friend%]
{{ subscriber.first_name | default: "friend" }}
{{{body}}}
{{#if member}}
{{/if}}
{{!-- a comment --}}
{{< figure src="a.png" >}}
{{% note %}}
{{ .Subscriber.FirstName }}
{% include header.html %}
{%- if a > b -%}
{% comment %}Not for readers.{% endcomment %}
{# a comment #}
<%= user.name %>
<% if a > b %>
<?php echo $name > 1 ?>
*|FNAME|*
*|IF:FNAME|*
*|MC:SUBJECT|*
%FIRSTNAME%
%recipient.first_name%
%first_name%
%%First Name%%
%%=v(@FirstName)=%%
%%[ SET @a = 1 ]%%
%%{first_name, "there"}%%
{$name}
{!firstname_fix}
{firstname}
{FIRSTNAME}
{first_name, "there"}
{contactfield=city}
{subtag:name|part:first}
{unsubscribe_text}
{loadposition banner}
{include file="a.tpl"}
${user.firstName}
#{user.first_name}
{: .lead}
{#own-id}
$[FNAME|friend|]$
#recipient:name#
~Contact.FirstName~
@FIRSTNAME@
##LASTNAME##
|FNAME|
[youtube https://video.example/abc]
[[*pagetitle]]
[[!snippet? &a=1]]
«First Name»
<<First Name>>\
""".splitlines()


@pytest.mark.parametrize("tag", TEMPLATE_TAGS)
def test_template_tag_is_removed_from_post_wherever_it_occurs(tag: str) -> None:
    for content, paragraph in (
        (f"{tag}\n\n{TEXT}", TEXT),
        (f"{TEXT} {tag} It rained.", f"{TEXT} It rained."),
        (f"<p>{TEXT}</p><p>{tag}</p>", TEXT),
        (f"<table><tr><td>{TEXT} {tag}</td></tr></table>", TEXT),
    ):
        plain = parse_post(Post(f"Harbour {tag}", content))
        assert (plain.title, plain.paragraphs, plain.headings) == ("Harbour", (paragraph,), ())


@pytest.mark.parametrize(
    ("content", "paragraph"),
    [
        ("[vc_row][vc_column]One.[/vc_column][/vc_row] Two.", "One. Two."),
        ("[vc_column]One[/vc_column][vc_column]Two[/vc_column]", "One Two"),
        ("[glossary]The quay[/glossary] is [b]new[/b], and [url=https://a.example]open[/url].",
         "The quay is new, and open."),
        ("{% if member %}For members.{% else %}For all.{% endif %}", "For members. For all."),
        ("{if $paid}For members.{else}For all.{/if}", "For members. For all."),
        ("{gallery}One.{/gallery} Two.", "One. Two."),
        ("[[Lisbon]] and [[Porto|its rival]] met.", "Lisbon and its rival met."),
        ("::: tip\nOne.\n:::", "One."),
        ("[row a=&quot;1&quot;]One.[/row]", "One."),
        ("&#91;vc_row&#93;One.&#123;&#123; x &#125;&#125;", "One."),
        ("{{#each items}}{{this}}, {{/each}}one.", "one."),
        ("{{ a {{ b }} }} One.", "One."),
    ],
)  # fmt: skip
def test_text_between_template_tags_is_kept(content: str, paragraph: str) -> None:
    assert " ".join(parse_post(Post("", content)).paragraphs) == paragraph


@pytest.mark.parametrize(
    ("content", "paragraph"),
    [
        ("Dear {{ name | default: 'you' }}, the quay is open.", "The quay is open."),
        ("Hello *|FNAME|* *|LNAME|*, the quay is open.", "The quay is open."),
        ("Liebe {VORNAME}, der Kai ist offen.", "Der Kai ist offen."),
        ("Hi <b>%FIRSTNAME%</b>, the quay is open.", "The quay is open."),
        ("{{first_name}}, the quay is open.", "The quay is open."),
        ("It rained. [[first_name]], the quay is open.", "It rained. The quay is open."),
        ("Thank you, {$name}, for all.", "Thank you for all."),
        ("See you soon, {{name}}!", "See you soon!"),
        ("Until then, {{name}}", "Until then"),
        ("Hello {{name}}! The quay is open.", "Hello! The quay is open."),
        ("{{ city }}, the quay is open.", "The quay is open."),
        ("Mail {{ contact.email }}, please.", "Mail, please."),
        ("Apples, {{ fruit }}, and pears.", "Apples, and pears."),
    ],
)
def test_name_placeholder_is_removed_together_with_its_greeting_or_comma(
    content: str, paragraph: str
) -> None:
    assert parse_post(Post("", content)).paragraphs == (paragraph,)


@pytest.mark.parametrize(
    "text",
    [
        'He said: "We [the city] paid for it."',
        "The array a[0] is first, and b[next_row] is last.",
        "It was [sic] so, as before [1] and [citation needed].",
        "A [video] of the [co-op] (n [n = 20]) is [here].",
        "The pair {x, y} and the set {a} are {curly} words.",
        "The route /users/{name} and {id} stay, and {name, age} too.",
        "It is 100 % of 50 % of all, or 5% to 7%.",
        "Set %PATH% to %APPDATA% and x %in% y.",
        "Costs $5 or $[5]; mail @anna about #quay.",
        "The «nouveau quai» and << others >> stay: a << b.",
        "1 < 2 and 3 > 2, *not|this|*.",
        "It ends at ~10:30~ and #1:2#.",
    ],
)
def test_ordinary_brackets_in_post_text_are_kept(text: str) -> None:
    assert remove_marks(text) == text


def test_markdown_reference_links_are_kept_despite_template_tag_removal() -> None:
    content = "[my_file](https://a.example/x) and [two][my_ref] and [my_ref].\n\n[my_ref]: https://b.example"
    plain = parse_post(Post("", content))
    assert plain.paragraphs == ("my_file and two and my_ref.",)
    assert plain.links == {"https://a.example/x", "https://b.example"}


@pytest.mark.parametrize("gap", ["", "\n"])
@pytest.mark.parametrize(
    "front_matter",
    [
        "---\ntitle: Harbour reopens\nlayout: post\ntags:\n- a\n  - b\n# no\n\ndraft: false\n---\n",
        "---\r\ntitle: Harbour reopens\r\n---\r\n",
        "\ufeff---\ntitle: >\n  Harbour\n...\n",
        "---\n---\n",
        '+++\ntitle = "Harbour"\n[params]\nx = 1\n+++\n',
        '{\n  "title": "Harbour", "tags": ["a"]\n}\n',
    ],
)
def test_front_matter_is_removed_from_post(front_matter: str, gap: str) -> None:
    assert parse_post(Post("", f"{front_matter}{gap}{TEXT}")).paragraphs == (TEXT,)


@pytest.mark.parametrize(
    "content",
    [
        f"---\n\n{TEXT}\n\n---\n\nMore.",
        f"---\nNote: mind the gap.\n{TEXT}\n---\n\nMore.",
        f"---\ntitle: never closed\n\n{TEXT}",
        f'{{"title": "Harbour"}} is JSON. {TEXT}',
        '{"title": "Harbour"}',
    ],
)
def test_post_that_only_resembles_front_matter_is_kept(content: str) -> None:
    text = parse_post(Post("", content)).text
    assert TEXT in text or "title" in text


@pytest.mark.parametrize("tag", ["*|FNAME|*", "{{ name }}", "[et_pb_row]", "%FIRSTNAME%"])
def test_template_tag_in_model_answer_is_reported_and_removed(tag: str) -> None:
    plain = parse_post(Post("Harbour", TEXT))
    answer = f"The quay {tag} is open."
    assert rules.find_tweets_faults(plain, [answer])
    assert rules.fit_tweets(plain, [answer]) == ("The quay is open.",)


def test_offline_composer_output_contains_no_template_tags() -> None:
    content = "\n\n".join(
        f"{tag} {TEXT} Issue {number}." for number, tag in enumerate(TEMPLATE_TAGS)
    )
    plain = parse_post(Post("", content))
    metadata = writer.write_metadata(plain, frozenset(MetadataField), "0" * 64)
    outputs = " ".join((metadata.slug or "", metadata.summary or "", *writer.write_tweets(plain)))
    assert not set("[]{}|%<>«»#~$@*_") & set(outputs)
    assert "harbour" in (metadata.tags or ())
    assert clean_text(str(plain.paragraphs[0])) == plain.paragraphs[0]
