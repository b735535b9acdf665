"""Hostile redirect URIs: they look like a registered URI, but lead to another place."""

# The redirect URIs that a client has registered.
REGISTERED = "https://client.example/callback"
LOOPBACK = "http://127.0.0.1:5000/callback"

_HOSTS = [
    *("evil.example", "client.example.evil.example", "client.example@evil.example"),
    *("evil.example#client.example", "evil.example\\@client.example", "client.example:444"),
    *("client.example:80", "client.example.", "CLIENT.example", "client%2eexample"),
    *("user@client.example", "client.example%00.evil.example", "client.example\\.evil.example"),
    *("cl\u0456ent.example", "xn--clent-uxa.example", "[::1]", "127.0.0.1", "0x7f.1", "2130706433"),
    *("localhost", "client.example%0d%0aLocation:evil", "evil.example/client.example"),
    *("client.example;evil.example", "client.example,evil.example", "client.example evil.example"),
]
_SCHEMES = [
    *("http", "HTTPS", "javascript", "data", "file", "ftp", "ws", "blob", "about", "vbscript"),
    *("intent", "view-source", "gopher", "jar:https", "https https", " https", "\thttps", ""),
]
_PATHS = [
    *("", "/", "/callback/", "/callback/x", "/callback/..", "/callback/../callback", "/Callback"),
    *("/callback%2f", "/%63allback", "//callback", "/./callback", "/callback;x", "/callback."),
    *("/callback?", "/callback?x=1", "/callback?redirect=https://evil.example", "/callback#"),
    *("/callback#x", "/callback%00", "/callback\x00", "/callback\n", "/callback\r\nX: y"),
    *("/callback ", "/callback%20", "/callback\\", "/\\evil.example", "/callback&x", "/call"),
    *("/callback%0d%0aSet-Cookie:a=b", "/callbackevil", "/callback/../../evil", "/callback\u202e"),
    *("/callback?%23", "/..;/callback", "/callback/%2e%2e/evil", "/callback\t", "/callback\x7f"),
]
_COMPLETE_URIS = [
    *("//client.example/callback", "///client.example/callback", "/callback", "callback", "."),
    *("https:client.example/callback", "https:/client.example/callback", "\\\\evil.example"),
    *("https:///client.example/callback", "https:\\\\client.example\\callback", "*", "null"),
    *("javascript:alert(1)//https://client.example/callback", "undefined", "https://*/callback"),
    *("data:text/html,https://client.example/callback", "https://client.example/*", "about:blank"),
    *("urn:ietf:wg:oauth:2.0:oob", "com.evil.app:/callback", "client.example/callback", "%"),
    *("https://client.example/callback https://evil.example", "https://client.example/callback,"),
    *("https://evil.example/?https://client.example/callback", "https://%63lient.example/callback"),
    *("https://[::1", "https://client.example:99999999/callback", "https://client.example:x/c"),
]
_NEAR_LOOPBACK = [
    *("http://127.0.0.1:5000/other", "https://127.0.0.1:5000/callback", "http://127.0.0.1/other"),
    *("http://127.0.0.2:5000/callback", "http://localhost:5000/callback", "http://127.1:5000/c"),
    *("http://127.0.0.1:5000@evil.example/callback", "http://evil.example:5000/callback"),
    *("http://127.0.0.1.evil.example:5000/callback", "http://127.0.0.1:99999/callback"),
    *("http://127.0.0.1:5000/callback?x", "http://127.0.0.1:5000/callback#x", "http://[::1]:1/c"),
    *("http://127.0.0.1:-1/callback", "http://127.0.0.1:5000x/callback", "http://127.0.0.1:/x"),
    *("http://user@127.0.0.1:5000/callback", "http://127.0.0.1:05000/callback"),
    *("HTTP://127.0.0.1:5000/callback", "http://127.0.0.1:\uff15000/callback"),
    *("http://127.0.0.1:5000//callback", "http://2130706433:5000/callback"),
    *("http://0/callback", "http://0.0.0.0:1/c", "http://[::1]/callback"),
]

# URIs that are similar to a registered redirect URI, but to which the server must not redirect.
HOSTILE_URIS = [
    *(f"https://{host}/callback" for host in _HOSTS),
    *(f"{scheme}://client.example/callback" for scheme in _SCHEMES),
    *(f"https://client.example{path}" for path in _PATHS),
    *_COMPLETE_URIS,
    *_NEAR_LOOPBACK,
]

# Redirect URIs that an OAuth client must not register.
UNREGISTRABLE = [
    *("", " ", "x", "/callback", "//client.example/callback", "http://client.example/callback"),
    *("https://", "https:///x", "https://client.example/x#y", "https://client.example/#"),
    *("https://user@client.example/x", "https://u:p@client.example/x", "ftp://client.example/x"),
    *("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "https://client.example\\x"),
    *("myapp:/callback", "myapp://callback", "com.example.app://host/x", "com.example.app:x"),
    *("https://client.example/ü", "https://client.example/a b", "https://client.example/\n"),
    *("http://127.0.0.2/x", "http://localhost.evil.example/x", "http://0.0.0.0/x", "about:blank"),
    *("https://client.example:x/", "https://[::1/", "https://client.example/" + "x" * 2000),
    *("https://client.example/x?", "HTTPS://client.example/x", "https://client.example/\x00"),
]
