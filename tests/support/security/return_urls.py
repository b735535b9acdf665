# ruff: noqa: RUF001 - the hosts contain letters that look alike
"""Return URLs that look like URLs of an allowed host, but lead elsewhere."""

# The host that the settings allow.
SHOP = "shop.example"
EVIL = "evil.example"
CONTROLS = [chr(code) for code in (*range(0x21), 0x7F, 0x85, 0xA0, 0x2028, 0x2029, 0xFEFF)]

# Whose part before the path is another's, or none.
_HOSTS = [
    *(EVIL, f"{SHOP}:80", f"{SHOP}:8444", f"{SHOP}.{EVIL}", f"{EVIL}.{SHOP}", f"x{SHOP}"),
    *(f"{SHOP}x", f"{SHOP}.", f"{SHOP}..", f".{SHOP}", "shop.exampl", "shop", "shopXexample"),
    "intra.example",
    # Users, and what may be read as one.
    *(f"{SHOP}@{EVIL}", f"{EVIL}@{SHOP}", f"@{SHOP}", f":@{SHOP}", f"a:b@{SHOP}"),
    *(f"{SHOP}:443@{EVIL}", f"{SHOP}%40{EVIL}", f"{SHOP}#@{EVIL}", f"{SHOP}?@{EVIL}"),
    *(f"{SHOP};@{EVIL}", f"{SHOP}\\@{EVIL}", f"{EVIL}\\@{SHOP}", f"{EVIL}#@{SHOP}"),
    *(f"{EVIL}?@{SHOP}", f"{EVIL}/@{SHOP}", f"{EVIL}//{SHOP}", f"{EVIL},{SHOP}", f"{SHOP},{EVIL}"),
    *(f"{SHOP} {EVIL}", f"{SHOP}&{EVIL}", f"{SHOP}={EVIL}", f"({SHOP})", f"{SHOP}%2f@{EVIL}"),
    *(f"{SHOP}\\{EVIL}", f"{SHOP}\\.{EVIL}"),
    # Escapes.
    *("%73hop.example", "shop%2eexample", f"{SHOP}%00.{EVIL}", f"{SHOP}%2f{EVIL}"),
    f"{SHOP}%23.{EVIL}",
    # Ports.
    *(f"{SHOP}:{port}" for port in ("", "0443", "+443", "443.0", "65536", "99999999", "-1")),
    *(f"{SHOP}:{port}" for port in ("4 43", "443:443", "८४४३", "evil")),
    # Letters that look alike, or are folded to others.
    *("ѕhop.example", "shop。example", "shop．example", "shop.exampłe", "ｓｈｏｐ.example"),
    *("ſhop.example", "shop.example\u3002evil.example", f"{SHOP}\u2044{EVIL}", f"{SHOP}\u00ad"),
    *(f"{SHOP}\uff0f{EVIL}", "xn--hop-9ka.example", "[shop.example]", "[::ffff:1.2.3.4]"),
    *(f"{SHOP}{mark}" for mark in CONTROLS),
]
# What is not absolute, or not http.
_SCHEMES = [
    *("http://", "", "//", "///", "https:/", "https:", "https:///", "https:////", "https//"),
    *("https;//", "://", "ftp://", "ws://", "view-source:https://", "httpsx://"),
    *("https://https://", "http+unix://", "https:\\\\", "https%3a%2f%2f"),
    *(f"{mark}https://" for mark in CONTROLS),
    *(f"ht{mark}tps://" for mark in CONTROLS),
]
_PATHS = [
    # Backslashes, doubled slashes, escapes, and what headers and pages could trip over.
    *(f"\\{EVIL}", f"/{EVIL}", f"//{EVIL}", f"a//{EVIL}", f"%5c{EVIL}", f"%5C%5C{EVIL}"),
    *("%", "%0", "%zz", "%00", f"%0d%0aLocation:%20https://{EVIL}", "?x=%0d%0aSet-Cookie:x"),
    *("#%0a", "%7f", "ü", "\U0001f600"),
    *(f"a{mark}b" for mark in ' "<>^`{|}'),
    *CONTROLS,
    # Its own answer.
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
