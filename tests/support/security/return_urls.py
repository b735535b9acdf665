# ruff: noqa: RUF001 - the hosts contain letters that look alike
"""Hostile return URLs: they look like URLs of an allowed host, but lead to another host."""

# The host to which a return URL may lead, according to the settings of the tests.
SHOP = "shop.example"
EVIL = "evil.example"
CONTROLS = [chr(code) for code in (*range(0x21), 0x7F, 0x85, 0xA0, 0x2028, 0x2029, 0xFEFF)]

# Parts of URLs between the scheme and the path that are invalid or belong to another host.
_HOSTS = [
    *(EVIL, f"{SHOP}:80", f"{SHOP}:8444", f"{SHOP}.{EVIL}", f"{EVIL}.{SHOP}", f"x{SHOP}"),
    *(f"{SHOP}x", f"{SHOP}.", f"{SHOP}..", f".{SHOP}", "shop.exampl", "shop", "shopXexample"),
    "intra.example",
    # Hosts with a user name in front, or with a part that parsers may take for a user name.
    *(f"{SHOP}@{EVIL}", f"{EVIL}@{SHOP}", f"@{SHOP}", f":@{SHOP}", f"a:b@{SHOP}"),
    *(f"{SHOP}:443@{EVIL}", f"{SHOP}%40{EVIL}", f"{SHOP}#@{EVIL}", f"{SHOP}?@{EVIL}"),
    *(f"{SHOP};@{EVIL}", f"{SHOP}\\@{EVIL}", f"{EVIL}\\@{SHOP}", f"{EVIL}#@{SHOP}"),
    *(f"{EVIL}?@{SHOP}", f"{EVIL}/@{SHOP}", f"{EVIL}//{SHOP}", f"{EVIL},{SHOP}", f"{SHOP},{EVIL}"),
    *(f"{SHOP} {EVIL}", f"{SHOP}&{EVIL}", f"{SHOP}={EVIL}", f"({SHOP})", f"{SHOP}%2f@{EVIL}"),
    *(f"{SHOP}\\{EVIL}", f"{SHOP}\\.{EVIL}"),
    # Host names with percent-encoded characters.
    *("%73hop.example", "shop%2eexample", f"{SHOP}%00.{EVIL}", f"{SHOP}%2f{EVIL}"),
    f"{SHOP}%23.{EVIL}",
    # Host names with an invalid or unusual port.
    *(f"{SHOP}:{port}" for port in ("", "0443", "+443", "443.0", "65536", "99999999", "-1")),
    *(f"{SHOP}:{port}" for port in ("4 43", "443:443", "८४४३", "evil")),
    # Host names with Unicode letters that look like ASCII letters or are normalized to them.
    *("ѕhop.example", "shop。example", "shop．example", "shop.exampłe", "ｓｈｏｐ.example"),
    *("ſhop.example", "shop.example\u3002evil.example", f"{SHOP}\u2044{EVIL}", f"{SHOP}\u00ad"),
    *(f"{SHOP}\uff0f{EVIL}", "xn--hop-9ka.example", "[shop.example]", "[::ffff:1.2.3.4]"),
    *(f"{SHOP}{mark}" for mark in CONTROLS),
]
# Beginnings of URLs that are relative, or whose scheme is not http or https.
_SCHEMES = [
    *("http://", "", "//", "///", "https:/", "https:", "https:///", "https:////", "https//"),
    *("https;//", "://", "ftp://", "ws://", "view-source:https://", "httpsx://"),
    *("https://https://", "http+unix://", "https:\\\\", "https%3a%2f%2f"),
    *(f"{mark}https://" for mark in CONTROLS),
    *(f"ht{mark}tps://" for mark in CONTROLS),
]
_PATHS = [
    # Paths with backslashes, double slashes, escapes, or characters that can break headers or HTML.
    *(f"\\{EVIL}", f"/{EVIL}", f"//{EVIL}", f"a//{EVIL}", f"%5c{EVIL}", f"%5C%5C{EVIL}"),
    *("%", "%0", "%zz", "%00", f"%0d%0aLocation:%20https://{EVIL}", "?x=%0d%0aSet-Cookie:x"),
    *("#%0a", "%7f", "ü", "\U0001f600"),
    *(f"a{mark}b" for mark in ' "<>^`{|}'),
    *CONTROLS,
    # Query parameters that the product itself adds to a return URL.
    *("?status=paid", "?order_id=1", "?a=1&STATUS=paid", "?a=1;status=paid", "?%73tatus=paid"),
    *("?status", "?+status=paid"),
    "a" * 2048,
]
HOSTILE_RETURN_URLS = [
    *(f"{scheme}{EVIL}/" for scheme in ("http://", "HTTPS://", "//", "https:\\\\", "https:/\\")),
    *(f"\\\\{EVIL}/", f"/\\{EVIL}/", f"http://{SHOP}:443/", SHOP, f"{SHOP}/done"),
    *("", "/", "/done", "done", "?x", "#x", "https://", "https:", "https:///"),
    *(f"file://{SHOP}/etc/passwd", f"javascript://{SHOP}/%0aalert(1)", "javascript:alert(1)"),
    *("data:text/html,<script>alert(1)</script>", f"blob:https://{SHOP}/x"),
    *(f"https://{host}/" for host in _HOSTS),
    *(f"{scheme}{SHOP}/" for scheme in _SCHEMES),
    *(f"https://{SHOP}/{path}" for path in _PATHS),
]
