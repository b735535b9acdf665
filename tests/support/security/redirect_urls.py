# ruff: noqa: RUF001 - the look-alike letters are what the tests try
"""Hostile redirect URLs: they look like the URL of an allowed site, but lead elsewhere."""

GOOD = "shop.example"
EVIL = "evil.example"
CONTROLS = [chr(code) for code in (*range(0x21), 0x7F, 0x85, 0xA0, 0x2028, 0x2029, 0xFEFF)]

# URLs of other hosts, or without a host.
_HOSTS = [
    *(EVIL, f"{GOOD}:80", f"{GOOD}:8444", f"{GOOD}.{EVIL}", f"{EVIL}.{GOOD}", f"x{GOOD}"),
    *(f"{GOOD}x", f"{GOOD}.", f"{GOOD}..", f".{GOOD}", "shop.exampl", "shop", "shopXexample"),
    "intra.example",
    # User names, and text that could be read as a user name.
    *(f"{GOOD}@{EVIL}", f"{EVIL}@{GOOD}", f"@{GOOD}", f":@{GOOD}", f"a:b@{GOOD}"),
    *(f"{GOOD}:443@{EVIL}", f"{GOOD}%40{EVIL}", f"{GOOD}#@{EVIL}", f"{GOOD}?@{EVIL}"),
    *(f"{GOOD};@{EVIL}", f"{GOOD}\\@{EVIL}", f"{EVIL}\\@{GOOD}", f"{EVIL}#@{GOOD}"),
    *(f"{EVIL}?@{GOOD}", f"{EVIL}/@{GOOD}", f"{EVIL}//{GOOD}", f"{EVIL},{GOOD}", f"{GOOD},{EVIL}"),
    *(f"{GOOD} {EVIL}", f"{GOOD}&{EVIL}", f"{GOOD}={EVIL}", f"({GOOD})", f"{GOOD}%2f@{EVIL}"),
    *(f"{GOOD}\\{EVIL}", f"{GOOD}\\.{EVIL}"),
    # Escapes.
    *("%73hop.example", "shop%2eexample", f"{GOOD}%00.{EVIL}", f"{GOOD}%2f{EVIL}"),
    f"{GOOD}%23.{EVIL}",
    # Ports.
    *(f"{GOOD}:{port}" for port in ("", "0443", "+443", "443.0", "65536", "99999999", "-1")),
    *(f"{GOOD}:{port}" for port in ("4 43", "443:443", "८४४३", "evil")),
    # Letters that look alike or that normalization changes.
    *("ѕhop.example", "shop。example", "shop．example", "shop.exampłe", "ｓｈｏｐ.example"),
    *("ſhop.example", "shop.example\u3002evil.example", f"{GOOD}\u2044{EVIL}", f"{GOOD}\u00ad"),
    *(f"{GOOD}\uff0f{EVIL}", "xn--hop-9ka.example", "[shop.example]", "[::ffff:1.2.3.4]"),
    *(f"{GOOD}{mark}" for mark in CONTROLS),
]
# Schemes other than http and https, and relative URLs.
_SCHEMES = [
    *("http://", "", "//", "///", "https:/", "https:", "https:///", "https:////", "https//"),
    *("https;//", "://", "ftp://", "ws://", "view-source:https://", "httpsx://"),
    *("https://https://", "http+unix://", "https:\\\\", "https%3a%2f%2f"),
    *(f"{mark}https://" for mark in CONTROLS),
    *(f"ht{mark}tps://" for mark in CONTROLS),
]
_PATHS = [
    # Backslashes, doubled slashes, escapes, and characters that break headers or pages.
    *(f"\\{EVIL}", f"/{EVIL}", f"//{EVIL}", f"a//{EVIL}", f"%5c{EVIL}", f"%5C%5C{EVIL}"),
    *("%", "%0", "%zz", "%00", f"%0d%0aLocation:%20https://{EVIL}", "?x=%0d%0aSet-Cookie:x"),
    *("#%0a", "%7f", "ü", "\U0001f600"),
    *(f"a{mark}b" for mark in ' "<>^`{|}'),
    *CONTROLS,
    # Query parameters with which the API reports the result.
    *("?status=paid", "?order_id=1", "?a=1&STATUS=paid", "?a=1;status=paid", "?%73tatus=paid"),
    *("?status", "?+status=paid"),
    "a" * 2048,
]
HOSTILE = [
    *(f"{scheme}{EVIL}/" for scheme in ("http://", "HTTPS://", "//", "https:\\\\", "https:/\\")),
    *(f"\\\\{EVIL}/", f"/\\{EVIL}/", f"http://{GOOD}:443/", GOOD, f"{GOOD}/done"),
    *("", "/", "/done", "done", "?x", "#x", "https://", "https:", "https:///"),
    *(f"file://{GOOD}/etc/passwd", f"javascript://{GOOD}/%0aalert(1)", "javascript:alert(1)"),
    *("data:text/html,<script>alert(1)</script>", f"blob:https://{GOOD}/x"),
    *(f"https://{host}/" for host in _HOSTS),
    *(f"{scheme}{GOOD}/" for scheme in _SCHEMES),
    *(f"https://{GOOD}/{path}" for path in _PATHS),
]

HOSTILE_LOOPBACK = [
    *("http://localhost.evil.example/", "http://127.0.0.1.evil.example/", "http://127.1/"),
    *("http://localhost@evil.example/", "http://evil.example#localhost", "http://127.0.0.2/"),
    *("http://127.0.0.1./", "http://0.0.0.0/", "http://0/", "http://0177.0.0.1/"),
    *("http://0x7f.0.0.1/", "http://0x7f000001/", "http://2130706433/", "http://[::]/"),
    *("http://[::ffff:127.0.0.1]/", "http://[0:0:0:0:0:0:0:1]/", "http://[::1%25lo]/"),
    *("http://::1/", "http://localhost:/", "http://localhost./", "http://localhost:0/"),
    *("http://169.254.169.254/", "http://①②⑦.0.0.1/"),
]
