"""Tests that no webhook URL reaches a private server.

A server on this machine records the calls that reach it.
"""

import ipaddress
import time
from collections.abc import Iterator, Sequence

import pytest

from integrations.receivers import destinations
from integrations.receivers.addresses import is_public
from integrations.receivers.client import Outcome, ReceiverClient, SignedPost
from integrations.receivers.destinations import DestinationRefused
from tests.support.http.servers import Listener, trickling_server

MIN_HOSTILE_URLS = 200
PRIVATE_V4 = [
    "127.0.0.1", "127.0.0.2", "127.1.2.3", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1",
    "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255", "168.63.129.16",
    "169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1",
    "192.0.0.9", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255",
    "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "224.0.1.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255",
]  # fmt: skip
PRIVATE_V6 = [
    "::", "::1", "::2", "::ffff:127.0.0.1", "::ffff:7f00:1", "0:0:0:0:0:ffff:7f00:0001",
    "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8", "::127.0.0.1", "::7f00:1",
    "::8.8.8.8", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8", "64:ff9b:1::7f00:1", "64:ff9b:1:2:3:4:127.0.0.1",
    "2002:7f00:1::", "2002:7f00:0001::1", "2002:a00:1::", "2002:a9fe:a9fe::", "2002:808:808::",
    "2001::1", "2001:0:7f00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "2001:10::1",
    "2001:20::1", "2001:db8::1", "3fff::1", "2620:4f:8000::1", "100::1", "5f00::1", "fc00::1",
    "fd00::1", "fd00:ec2::254", "fdff:ffff::1", "fe80::1", "febf::1", "fec0::1", "feff::1",
    "ff02::1", "ff05::1:3", "ff0e::1", "4000::1", "8000::1", "e000::1",
    "2600:1f00::5efe:7f00:1", "2600:1f00::5efe:a9fe:a9fe", "2600:1f00::200:5efe:127.0.0.1",
]  # fmt: skip
# Spellings of hosts that some parsers of URLs or IP addresses resolve to this machine.
LOCAL_HOST_SPELLINGS = [
    "127.1", "127.0.1", "127.00.0.1", "0127.0.0.1", "0177.0.0.1", "0177.0.0.01", "0177.1",
    "017700000001", "2130706433", "02130706433", "0x7f.0.0.1", "0x7f.1", "0x7f000001", "0X7F000001",
    "0x7f.0x0.0x0.0x1", "127.0.0.0x1", "127.0.0.1.", "127.0.0.1..", "127..0.0.1", ".127.0.0.1",
    "127.0.0.1.1", "1.127.0.0.1", "127.0.0.256", "127.0.0", "127.0.0.1e0", "0", "00", "0x0", "0.0",
    "4294967297", "-2130706433", "127.0.0.-1", "127,0,0,1", "127。0。0。1", "127｡0｡0｡1",
    "①②⑦.⓪.⓪.①", "\uff11\uff12\uff17.\uff10.\uff10.\uff11", "127%2e0%2e0%2e1",
    "%31%32%37.0.0.1", "127.0.0.1%00",
    "127.0.0.1%20", "127.0.0.1%2f", "127.0.0.1%09", "localhost", "LOCALHOST", "LocalHost",
    "localhost.", "localhost%00", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "loc\u00adalhost", "localhost\u200b", "local_host",
    "a.localhost", "xn--localhost", "-localhost", "localhost-", "[::1", "::1]", "::1",
    "[127.0.0.1]",
    "[::1%25lo]", "[::1%lo]", "[fe80::1%25eth0]", "[::1]x", "[[::1]]", "[v1.127.0.0.1]", "[]", "",
    " 127.0.0.1", "127.0.0.1 ", "\t127.0.0.1", "127.0.0.1\n", "127.0.0.1\r\nX: y", "127.0.0.1\x00",
    "*", "a" * 64 + ".example", ".".join(["a" * 60] * 5), "ex ample.com", "exa\\mple.com",
]  # fmt: skip
# URLs for which different parsers find different hosts. The placeholder `{port}` is replaced by the
# port of a server on this machine.
AMBIGUOUS_URLS = [
    "https://user@127.0.0.1:{port}/", "https://user:secret@127.0.0.1:{port}/",
    "https://example.com@127.0.0.1:{port}/", "https://example.com:443@127.0.0.1:{port}/",
    "https://127.0.0.1:{port}@example.com/", "https://example.com\\@127.0.0.1:{port}/",
    "https://127.0.0.1:{port}\\@example.com/", "https://example.com#@127.0.0.1:{port}/",
    "https://127.0.0.1:{port}#@example.com/", "https://example.com%40127.0.0.1:{port}/",
    "https://@127.0.0.1:{port}/", "https://:@127.0.0.1:{port}/", "https:/127.0.0.1:{port}/",
    "https:127.0.0.1:{port}/", "https:///127.0.0.1:{port}/", "https:\\\\127.0.0.1:{port}\\",
    "//127.0.0.1:{port}/", "127.0.0.1:{port}", "http://127.0.0.1:{port}/",
    "HTTP://127.0.0.1:{port}/", "ws://127.0.0.1:{port}/", "wss://127.0.0.1:{port}/",
    "ftp://127.0.0.1:{port}/", "gopher://127.0.0.1:{port}/_x", "file:///etc/passwd",
    "file://127.0.0.1:{port}/", "dict://127.0.0.1:{port}/", "ldap://127.0.0.1:{port}/",
    "jar:https://127.0.0.1:{port}!/", "data:text/plain,x", "javascript:1", "unix:///run/x.sock",
    "https+unix://%2Frun%2Fx/", "url:https://127.0.0.1:{port}/", " https://127.0.0.1:{port}/",
    "\thttps://127.0.0.1:{port}/", "https\t://127.0.0.1:{port}/", "https://\t127.0.0.1:{port}/",
    "https://127.0.0.1:{port}/ x", "https://127.0.0.1:{port}/\r\nHost: x", "https://127.0.0.1:0/",
    "https://127.0.0.1:-1/", "https://127.0.0.1:65536/", "https://127.0.0.1:0{port}/",
    "https://127.0.0.1:{port}:80/", "https://127.0.0.1:+{port}/", "https://127.0.0.1:/",
    "https://127.0.0.1:{port}/#x", "https://127.0.0.1:{port}?x", "https://127.0.0.1:{port}/x?y=z",
    "https://127.0.0.1:{port}/\u202e", "https://127.0.0.1:{port}/<x>", "", "https://", "https", "x",
    "https://[::ffff:127.0.0.1]:{port}/", "https://example.com:25/", "https://example.com:80/",
    "https://example.com:22/", "http://example.com/", "http://example.com:8080/",
    "https://example.com/" + "x" * 2_000,
]  # fmt: skip


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def local_listener() -> Iterator[Listener]:
    """A server that listens on all addresses of this machine and records its requests."""
    with Listener("0.0.0.0", OK).listening() as listener:
        yield listener


def build_client(
    *allowed_networks: str, resolve: destinations.Resolver | None = None
) -> ReceiverClient:
    return ReceiverClient([ipaddress.ip_network(each) for each in allowed_networks], resolve)


def post(client: ReceiverClient, url: str) -> Outcome:
    [outcome] = client.post_each(url, [SignedPost(b"{}", {})])
    return outcome


def build_hostile_urls(port: int) -> list[str]:
    literal = [f"https://{host}:{port}/" for host in PRIVATE_V4]
    literal += [f"https://[{host}]:{port}/" for host in PRIVATE_V6]
    return [
        *literal,
        *(f"https://{host}:{port}/" for host in LOCAL_HOST_SPELLINGS),
        *(shape.replace("{port}", str(port)) for shape in AMBIGUOUS_URLS),
    ]


def resolve_to(*addresses: str) -> destinations.Resolver:
    """Return a DNS resolver that resolves every host to ``addresses``."""
    return lambda host, port: addresses


def test_webhook_client_reaches_nothing_on_this_machine_by_any_hostile_url(
    local_listener: Listener,
) -> None:
    urls = build_hostile_urls(local_listener.port)
    assert len(set(urls)) >= MIN_HOSTILE_URLS
    # Every host name resolves to this machine, but the client must send no request to it.
    client = build_client(resolve=resolve_to("127.0.0.1"))
    for url in urls:
        assert post(client, url).status is None
    assert local_listener.calls == []


@pytest.mark.parametrize("address", PRIVATE_V4 + PRIVATE_V6)
def test_webhook_host_resolving_to_private_address_is_rejected(
    local_listener: Listener, address: str
) -> None:
    for addresses in ([address], ["8.8.8.8", address], [address, "2600:1f00::1"]):
        with pytest.raises(DestinationRefused):
            build_client(resolve=resolve_to(*addresses)).check("https://receiver.example/")
    assert local_listener.calls == []


@pytest.mark.parametrize("allowed", [[], ["127.0.0.2/32"]])
@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://receiver.example/x", "must start with https://"),
        ("https://receiver.example:22/x", "must have the port 443"),
    ],
)
def test_webhook_url_rules_apply_to_unresolvable_hosts(
    allowed: list[str], url: str, rule: str
) -> None:
    client = build_client(*allowed, resolve=resolve_to())
    with pytest.raises(DestinationRefused, match=rule):
        client.check(url)
    client.check("https://receiver.example:8443/x")


def test_webhook_host_is_resolved_only_once_per_call(local_listener: Listener) -> None:
    resolved_hosts: list[str] = []

    def resolve_changing_host(host: str, port: int) -> Sequence[str]:
        resolved_hosts.append(host)
        return ["127.0.0.2"] if len(resolved_hosts) == 1 else ["127.0.0.1"]

    client = build_client("127.0.0.2/32", resolve=resolve_changing_host)
    url = f"http://receiver.example:{local_listener.port}/hook?x=1"
    assert post(client, url).status == 200
    assert resolved_hosts == ["receiver.example"]
    assert (
        f"host: receiver.example:{local_listener.port}".encode() in local_listener.calls[0].lower()
    )
    assert post(client, url).status is None
    assert len(local_listener.calls) == 1


def test_webhook_client_does_not_follow_redirects() -> None:
    client = build_client("127.0.0.2/32")
    with Listener("127.0.0.1", OK).listening() as secret:
        headers = f"Location: http://127.0.0.1:{secret.port}/\r\nContent-Length: 0\r\n\r\n"
        for status in (301, 302, 303, 307, 308):
            answer = f"HTTP/1.1 {status} Moved\r\n{headers}".encode()
            with Listener("127.0.0.2", answer).listening() as receiver:
                outcome = post(client, f"http://127.0.0.2:{receiver.port}/")
                assert outcome.status == status
        assert secret.calls == []


def test_webhook_client_ignores_proxies_from_the_environment(
    local_listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{local_listener.port}")
    with Listener("127.0.0.2", OK).listening() as receiver:
        url = f"http://127.0.0.2:{receiver.port}/"
        assert post(build_client("127.0.0.2/32"), url).body == b"ok"
    assert local_listener.calls == []


def test_webhook_response_body_is_truncated() -> None:
    answer = b"HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
    with Listener("127.0.0.2", answer).listening() as receiver:
        outcome = post(build_client("127.0.0.2/32"), f"http://127.0.0.2:{receiver.port}/")
    assert outcome.body == b"x" * 4096


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n"],
    ids=["nothing", "head", "body"],
)
def test_trickling_webhook_response_times_out(
    monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr("integrations.receivers.client.MAX_CALL_SECONDS", 1.0)
    with trickling_server(beginning, b"x" if beginning else b"") as url:
        began_at = time.monotonic()
        assert post(build_client("127.0.0.1/32"), url).status is None
        assert time.monotonic() - began_at < 10


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "100.128.0.1", "2600:1f00::1"])
def test_public_ip_addresses_are_allowed_as_webhook_destinations(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
