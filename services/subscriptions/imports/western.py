"""Recognises texts of Western Europe that were stored in Windows-1252.

Bytes beyond ASCII always make some text in Windows-1252. If the file has another encoding, the text
has symbols inside words, capitals inside words, or letters that no Western language combines.
"""

import re

# The small letters beyond ASCII that occur together in the words of a language and of its loans.
_ALPHABETS = tuple(
    frozenset(letters + letters.upper())
    for letters in (
        "äöüßéèàçÿ",  # German
        "àâæçéèêëîïôœùûüÿ",  # French
        "áéíóúüïñçâêôãõà",  # Spanish, Portuguese
        "àèéìíîòóùú",  # Italian
        "áéíóúäëïöüèêç",  # Dutch
        "åäöéàüæøôòè",  # Danish, Finnish, Norwegian, Swedish
        "áðéíóúýþæö",  # Icelandic
        "àèéíïòóúüç",  # Catalan
    )
)
_LETTER = "A-Za-zÀ-ÖØ-öø-ÿŒœŸŠšŽž"
_CAPITAL = "A-ZÀ-ÖØ-ÞŒŸŠŽ"
_SMALL = "a-zß-öø-ÿœšž"

# Symbols where no name has them.
_MISPLACED_SYMBOLS = re.compile(
    "|".join(
        (
            # Undefined bytes, and symbols that never occur in names.
            r"[\x81\x8d\x8f\x90\x9d\xadƒˆ‰†‡˜¤¦¨¬¯±¹¸¼½¾×÷µ¢¥•‹›]",
            rf"[{_LETTER}][§©£€¡¿‚„…¶“”²³](?=[{_LETTER}])",
            rf"[§©£€™®°…²³](?=[{_LETTER}])|¶",
            rf"[{_LETTER}][¡¿€£§©]|(?<![mM])[²³]",
            rf"[{_LETTER}][™®°ºª](?=[{_LETTER}])",
            # Catalan l·l, and abbreviations such as nº and M.ª.
            rf"(?<![lL])·|·(?![lL])|(?<=[{_LETTER}]{{2}})[ºª]|(?<![\w.])[ºª]",
            # A dash joins two names, but stands in none.
            rf"[{_LETTER}][–—](?![{_CAPITAL}])",
            rf"[{_LETTER}]{{2}}‘|[{_LETTER}]‘(?![{_CAPITAL}])",
            r"[¡-¬®-¿×÷ˆ‰†‡˜€™]{2}",
        )
    )
)

# Neighbours that a small letter doesn't have in Western languages. Without them Czech, Polish,
# Turkish and Baltic names would pass: their letters have the bytes of Western ones.
_MISPLACED_LETTERS = re.compile(
    "|".join(
        (
            r"ñ(?![aeiouáéíóúü]|ch)",
            r"õ(?!e)|ã(?![oe]|s?$)|cã$|oarã$",
            r"(?<=[aeiouyáéíóúàèìòùâêîôûäëïöüãõåæøý])œ|œ(?=s?$|[aockpgszjw])|(?<![hm])œl|(?<!h)œb|œr|^œ(?![udits])",
            r"(?<=[aeiouy])æ|jæ$|æ[cwz]",
            r"è(?=[aeiouyáéíóúæk])|[aeij]è$|è(?!gue|que)(?=[^aeiouyr]{1,3}[aiouyáéíóú])",
            r"ì(?!$)|ù(?!s?$)|ò(?=[aeiouykáéíóú])|[ae]ò$",
            r"(?<![aeouáéóú])ï|ï$|íi|(?<!bront)(?<=[b-df-hj-np-tv-xzç])ë|^ë",
            r"î(?=r)|(?<![aoudgbnpc])(?<=.)î|^â(?![gmnpc])",
            r"û(?![tcrlnmge]|$)|ûcs|(?<![mspd])ûr|^rû",
            r"^(?=.*[âîû]).*ija$|ârs$|[âî][^aeiouy]{1,3}is$|^[^âêîôû]*[âêîôû].*[âêîôû]",
            r"ê(?=[kz])|êb(?![lê])|êg(?![ue])|êc(?!h)|êp(?![ei])|iê(?![nmu])",
            r"^(?=.*ê).*(?:[kw]|[crs]z)",
            r"^[^ß]*ß.*ß|^ß|ç(?=[bcdfghjkmnpqrstvwxz])|^ç(?!a$)",
            # Icelandic and Turkish share these bytes.
            r"^ð|^(?!.*(?:[áéíóúæ]|rð|guð|frið|heið|auð|eyð)).*[ðþý]",
            r"ø(?=[aouáíóúýìèù])|(?<=.)ø(?=i|e(?!n$).)|aø$",
            # No language has both accents in one word.
            r"^(?=.*[áíóú]).*[àèìòù]",
        )
    )
)
_WORD = re.compile(rf"[{_LETTER}]+")
_APOSTROPHE = re.compile(rf"(?<![{_LETTER}])([{_LETTER}]*)’(?=([{_LETTER}]*))")
_QUOTATION_MARKS = re.compile("[“”„]")
# The words before an apostrophe, and the endings behind one.
_ELIDED = frozenset(
    (
        *("d", "l", "o", "n", "m", "s", "t", "c", "j", "qu", "dell", "nell", "sant", "all", "ch"),
        *("gl", "un", "dall", "sull", "mc", "aujourd", "jusqu", "lorsqu", "puisqu", "quelqu"),
    )
)
_ENDINGS = frozenset({"s", "t", "ll", "re", "ve"})
_MIN_OWNER_CHARACTERS = 3
_MIN_ELIDED_CHARACTERS = 4
# Prefixes with a capital behind them.
_PREFIX = re.compile(r"(?:Ma?c|D[eiua]|L[aeo]|Van|Von|Fitz|Saint|O)\Z")
# Letters that a French keyboard leaves small while Caps Lock is on, and ß.
_SMALL_AMONG_CAPITALS = frozenset("éèçàùß")
_MIN_ALL_CAPITALS = 2


def is_western(text: str) -> bool:
    """Return whether all words fit a Western language; ``text`` was read as Windows-1252."""
    if _MISPLACED_SYMBOLS.search(text) or not _has_paired_marks(text):
        return False
    for before, after in _APOSTROPHE.findall(text):
        if not _fits_apostrophe(before, after, text):
            return False
    return all(_is_western_word(word) for word in _WORD.findall(text) if not word.isascii())


def _has_paired_marks(text: str) -> bool:
    """Return whether quotation marks come in pairs: “Ann”, „Ann“, ”Ann” or «Ann»."""
    is_even = len(_QUOTATION_MARKS.findall(text)) % 2 == 0
    return is_even and text.count("«") == text.count("»")


def _fits_apostrophe(before: str, after: str, text: str) -> bool:
    """Return whether the words around an apostrophe have one; in Mac Roman it is the letter í."""
    if not before:
        return True
    if not after:
        is_quotation = "‘" in text or text.count("’") > 1
        return is_quotation or before.lower().endswith(("s", "n", "f"))
    if after.lower() in _ENDINGS:
        return len(before) >= _MIN_OWNER_CHARACTERS or after.lower() != "s"
    if before.lower() not in _ELIDED:
        return False
    is_name = len(before) == 1 and before.isupper() and after[0].islower()
    return not is_name or len(after) >= _MIN_ELIDED_CHARACTERS


def _is_western_word(word: str) -> bool:
    letters = [letter for letter in word if not letter.isascii()]
    # At least a third of a word is ASCII, except in words of one letter.
    if len(word) > 1 and (len(letters) * 3 > len(word) * 2):
        return False
    if not any(alphabet.issuperset(letters) for alphabet in _ALPHABETS):
        return False
    if len(word) == 1 and word.isupper():
        return True
    return _MISPLACED_LETTERS.search(word.lower()) is None and _has_fitting_case(word)


def _has_fitting_case(word: str) -> bool:
    """Return whether the letters beyond ASCII are small or capital as in a name."""
    if word.islower() or word.isupper() or (word[0].isupper() and word[1:].islower()):
        return True
    capitals = sum(letter.isupper() for letter in word)
    for at, letter in enumerate(word):
        if letter.isascii() or not at:
            continue
        before, after = word[:at], word[at + 1 :]
        if letter.isupper() and before[-1].islower():
            if not (_PREFIX.match(before) and after[:1].islower()):
                return False
        elif letter.isupper() and after[:1].islower():
            return False
        is_among_capitals = before.isupper() and capitals > _MIN_ALL_CAPITALS
        if letter.islower() and is_among_capitals and letter not in _SMALL_AMONG_CAPITALS:
            return False
    return True
