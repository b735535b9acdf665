"""Generates random hostile posts, which mix scripts, markup, template syntax and fake links."""

from hypothesis import strategies as st

from services.composer.text.post import Post

_WORDS = (
    "bread garden Müller Straße l'été coração año война городской 重庆 音乐节 新闻 京都 紅葉 "
    "カメラ 서울 여행 กรุงเทพ ภาษาไทย हिन्दी समाचार مرحبا العالم שלום עולם Ελλάδα ქართული "
    "e.g. U.S. Node.js 3.14 2024. 👩‍🚀 🇩🇪 1️⃣ ❤️ x"
).split()
_MARKUP = (
    "** * __ _ ~~ ` ``` # > - 1. [ ] ( ) ![ ]( ](x) < > </ <b> </b> <p> </p> <div> </div> <br> "
    "<script> </script> <style> <!-- --> <![CDATA[ <? &amp; &lt; &gt; &#60; &#x3c;script&#62; & "
    "&amp;lt;b&amp;gt; <table> <tr> <td> </table> |a|b| |-|-| <pre> </pre> <textarea> <svg> "
    '<a href="https://good.example/a?b=c&d=e"> </a> <a href="javascript:alert(1)"> <h1> </h1> '
    "<img src=x onerror=alert(1)> [^1] [^1]: $ \\ \\* {{ }} %s <hidden hidden> <!DOCTYPE html> "
    '[x_y] [/x_y] [b [[ ]] {{a}} {% %} *|F| |* %NAME% %% {/a} {a_b} {$a [a="b" #{ @NAME@ '
    "::: --- +++ <p/> <i/> <% %> <? «name» <td> <span style=font-size:0> "
    "<p style=visibility:hidden> </span>"
).split()
_HARMFUL_TEXTS = (
    "https://good.example/path_(a)_b http://x www.evil.example evil.com/x @handle @имя ＠wide "
    "me@mail.example @a@b.example ｅｖｉｌ．ｃｏｍ evil。com javascript:alert(1) "
    "//evil.example ftp://f \u202etxet\u202c zero\u200bwidth \ufeff \u00ad \ue000 "
    "\ue0001\ue001 \x00 \x1b[31m \ud800 "
    "\U000e0041 a\u0301 a\u0301\u0301 \u0301 ﷽ ...... ,,, ; 、 ，"
).split(" ")
_ENDS = (". ", "! ", "? ", "。", "！", "؟ ", "। ", "…", "\n", "\n\n", " ", "  ", "\t", "", ", ")

_words = st.sampled_from(_WORDS)
_hostile = st.one_of(
    _words, st.sampled_from(_MARKUP), st.sampled_from(_HARMFUL_TEXTS), st.text(max_size=12)
)
_ends = st.sampled_from(_ENDS)


def _text(words: st.SearchStrategy[str], max_words: int) -> st.SearchStrategy[str]:
    word_lists = st.lists(st.tuples(words, _ends), max_size=max_words)
    return word_lists.map(lambda pairs: "".join(word + end for word, end in pairs))


_repeated = st.builds(
    lambda piece, times: (piece * times)[:6_000],
    st.one_of(_text(_hostile, 4), st.sampled_from(_MARKUP + _HARMFUL_TEXTS)),
    st.integers(1, 3_000),
)
_contents = st.one_of(
    _text(_words, 120), _text(_hostile, 80), _text(_hostile, 8), _repeated, st.text(max_size=200)
)
_titles = st.one_of(_text(_words, 12), _text(_hostile, 12), st.text(max_size=60)).map(
    lambda text: text[:500]
)

posts = st.builds(Post, _titles, _contents)
