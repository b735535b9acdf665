"""Lists the encodings that an imported file may have."""

import re
from collections.abc import Mapping

WINDOWS_1252 = "cp1252"
# The encodings that an owner can choose, in the order of the upload page.
ENCODINGS: Mapping[str, str] = {
    "utf-8": "Unicode (UTF-8)",
    "utf-16": "Unicode (UTF-16)",
    "utf-16-be": "Unicode (UTF-16, big-endian)",
    WINDOWS_1252: "Western Europe (Windows-1252)",
    "mac-roman": "Western Europe (Mac Roman)",
    "cp1250": "Central Europe (Windows-1250)",
    "iso8859-2": "Central Europe (ISO 8859-2)",
    "cp1251": "Cyrillic (Windows-1251)",
    "koi8-r": "Cyrillic (KOI8-R)",
    "cp1253": "Greek (Windows-1253)",
    "cp1254": "Turkish (Windows-1254)",
    "cp1257": "Baltic (Windows-1257)",
    "cp1255": "Hebrew (Windows-1255)",
    "cp1256": "Arabic (Windows-1256)",
    "cp932": "Japanese (Shift_JIS)",
    "euc_jp": "Japanese (EUC-JP)",
    "gb18030": "Simplified Chinese (GB18030)",
    "cp950": "Traditional Chinese (Big5)",
    "cp949": "Korean (EUC-KR)",
}
# Maps alternative names such as "latin1", and subsets of the listed encodings, to names in
# ``ENCODINGS``. The keys of ``_ALIASES`` are in lower case and without punctuation.
_ALIASES = {
    "utf16le": "utf-16",
    **dict.fromkeys(("latin1", "iso88591", "iso885915", "ansi"), WINDOWS_1252),
    **dict.fromkeys(("macintosh", "mac"), "mac-roman"),
    **dict.fromkeys(("iso88592", "latin2"), "iso8859-2"),
    **dict.fromkeys(("shiftjis", "sjis", "mskanji"), "cp932"),
    **dict.fromkeys(("gbk", "gb2312", "cp936"), "gb18030"),
    "big5": "cp950",
    **dict.fromkeys(("euckr", "uhc", "ksc5601"), "cp949"),
}
_NOT_OF_A_NAME = re.compile(r"[^a-z0-9]+")


def read_encoding(name: str) -> str | None:
    plain = _NOT_OF_A_NAME.sub("", name.lower())
    encodings = {_NOT_OF_A_NAME.sub("", encoding): encoding for encoding in ENCODINGS}
    return encodings.get(plain.replace("windows", "cp")) or _ALIASES.get(plain)
