"""Checks whether text that was decoded as Windows-1252 looks Western European.

Almost any sequence of bytes can be decoded as Windows-1252. Text that was decoded with the wrong
encoding contains symbols or capital letters inside words, or letter combinations that don't occur
in any Western language.
"""

import re

# The non-ASCII letters that occur in each language, including in loanwords.
_ALPHABETS = tuple(
    frozenset(letters + letters.upper())
    for letters in (
        "äöüßéèàçÿ",  # German
        "àâæçéèêëîïôœùûüÿ",  # French
        "áéíóúüïñçâêôãõà",  # Spanish, Portuguese
        "àèéìíîòóùú",  # Italian
        "áéíóúäëïöüèêç",  # Dutch
        "åäöéàüæøôòè",  # Nordic languages
        "áðéíóúýþæö",  # Icelandic
        "àèéíïòóúüç",  # Catalan
    )
)
_LETTER = "A-Za-zÀ-ÖØ-öø-ÿŒœŸŠšŽž"
_CAPITAL = "A-ZÀ-ÖØ-ÞŒŸŠŽ"

# Matches symbols that no name contains, or that no name contains at this position.
_MISPLACED_SYMBOLS = re.compile(
    "|".join(
        (
            # Matches bytes that are undefined in Windows-1252, and symbols that never occur in
            # names.
            r"[\x81\x8d\x8f\x90\x9d\xadƒˆ‰†‡˜¤¦¨¬¯±¹¸¼½¾×÷µ¢¥•‹›]",
            rf"[{_LETTER}][§©£€¡¿‚„…¶“”²³](?=[{_LETTER}])",
            rf"[§©£€™®°…²³](?=[{_LETTER}])|¶",
            rf"[{_LETTER}][¡¿€£§©]|(?<![mM])[²³]",
            rf"[{_LETTER}][™®°ºª](?=[{_LETTER}])",
            # The dot is valid only in Catalan l·l, and ordinal signs are valid only after
            # abbreviations, as in nº and M.ª.
            rf"(?<![lL])·|·(?![lL])|(?<=[{_LETTER}]{{2}})[ºª]|(?<![\w.])[ºª]",
            # A dash can join two names, but can't occur inside a name.
            rf"[{_LETTER}][–—](?![{_CAPITAL}])",
            rf"[{_LETTER}]{{2}}‘|[{_LETTER}]‘(?![{_CAPITAL}])",
            r"[¡-¬®-¿×÷ˆ‰†‡˜€™]{2}",
        )
    )
)

# Matches letter combinations that don't occur in any Western language. The pattern finds Czech,
# Polish, Turkish and Baltic names that were wrongly decoded as Windows-1252.
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
            # In Turkish encodings, the bytes of the Icelandic letters ð, þ and ý stand for Turkish
            # letters.
            r"^ð|^(?!.*(?:[áéíóúæ]|rð|guð|frið|heið|auð|eyð)).*[ðþý]",
            r"ø(?=[aouáíóúýìèù])|(?<=.)ø(?=i|e(?!n$).)|aø$",
            # No Western European language combines an acute and a grave accent in a word.
            r"^(?=.*[áíóú]).*[àèìòù]",
        )
    )
)
_WORD = re.compile(rf"[{_LETTER}]+")
_APOSTROPHE = re.compile(rf"(?<![{_LETTER}])([{_LETTER}]*)’(?=([{_LETTER}]*))")
_QUOTATION_MARKS = re.compile("[“”„]")
# The words that can precede an apostrophe, as in d’Angelo.
_ELIDED_WORDS = frozenset(
    (
        *("d", "l", "o", "n", "m", "s", "t", "c", "j", "qu", "dell", "nell", "sant", "all", "ch"),
        *("gl", "un", "dall", "sull", "mc", "aujourd", "jusqu", "lorsqu", "puisqu", "quelqu"),
    )
)
# The endings that can follow an apostrophe, as in Ann’s.
_ENDINGS = frozenset({"s", "t", "ll", "re", "ve"})
_MIN_OWNER_CHARACTERS = 3
_MIN_ELIDED_CHARACTERS = 4
# The prefixes that a capital letter can follow inside a name, as in McÉvoy.
_PREFIX = re.compile(r"(?:Ma?c|D[eiua]|L[aeo]|Van|Von|Fitz|Saint|O)\Z")
# The letters that may stay lower case in a name that is typed in capitals. On French keyboards, the
# letters é, è, ç, à and ù stay lower case under Caps Lock. The letter ß is hardly ever written as a
# capital.
_SMALL_AMONG_CAPITALS = frozenset("éèçàùß")
_MIN_ALL_CAPITALS = 2


def is_western(text: str) -> bool:
    if _MISPLACED_SYMBOLS.search(text) or not _has_paired_marks(text):
        return False
    for before, after in _APOSTROPHE.findall(text):
        if not _fits_apostrophe(before, after, text):
            return False
    return all(_is_western_word(word) for word in _WORD.findall(text) if not word.isascii())


def _has_paired_marks(text: str) -> bool:
    is_even = len(_QUOTATION_MARKS.findall(text)) % 2 == 0
    return is_even and text.count("«") == text.count("»")


def _fits_apostrophe(before: str, after: str, text: str) -> bool:
    """Return whether an apostrophe between ``before`` and ``after`` is plausible.

    An implausible apostrophe suggests Mac Roman, where the same byte is the letter í.
    """
    if not before:
        return True
    if not after:
        is_quotation = "‘" in text or text.count("’") > 1
        return is_quotation or before.lower().endswith(("s", "n", "f"))
    if after.lower() in _ENDINGS:
        return len(before) >= _MIN_OWNER_CHARACTERS or after.lower() != "s"
    if before.lower() not in _ELIDED_WORDS:
        return False
    is_name = len(before) == 1 and before.isupper() and after[0].islower()
    return not is_name or len(after) >= _MIN_ELIDED_CHARACTERS


def _is_western_word(word: str) -> bool:
    letters = [letter for letter in word if not letter.isascii()]
    # In Western European words of several letters, at least a third of the letters are ASCII.
    if len(word) > 1 and (len(letters) * 3 > len(word) * 2):
        return False
    if not any(alphabet.issuperset(letters) for alphabet in _ALPHABETS):
        return False
    if len(word) == 1 and word.isupper():
        return True
    return _MISPLACED_LETTERS.search(word.lower()) is None and _has_fitting_case(word)


def _has_fitting_case(word: str) -> bool:
    if word.islower() or word.isupper() or (word[0].isupper() and word[1:].islower()):
        return True
    capitals = sum(letter.isupper() for letter in word)
    for position, letter in enumerate(word):
        if letter.isascii() or not position:
            continue
        before = word[:position]
        after = word[position + 1 :]
        if letter.isupper() and before[-1].islower():
            if not (_PREFIX.match(before) and after[:1].islower()):
                return False
        elif letter.isupper() and after[:1].islower():
            return False
        is_among_capitals = before.isupper() and capitals > _MIN_ALL_CAPITALS
        if letter.islower() and is_among_capitals and letter not in _SMALL_AMONG_CAPITALS:
            return False
    return True
