# ruff: noqa: RUF001 - the tests contain letters that look like other letters
"""Tests that the worker sends no request if a photo URL in an API call is hostile."""

from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import httpx2
import pytest
from pydantic import AnyHttpUrl, SecretStr

from core.errors import DomainError
from core.settings import Settings
from devstack.harness.stack import Stack
from devstack.sandbox.sandbox_settings import UNSPLASH_PREFIX
from integrations.stock_photos.port import Photo, PhotoProviderName
from integrations.stock_photos.registry import StockPhotoProviders
from tests.support.http.servers import Listener

DOWNLOAD = "/composer/stockphoto/photos/download_url"
PHOTO = "/photos/LBI7cgq3pbM/download"
HOSTILE_HOSTS = ("localhost", "127.0.0.1", "169.254.169.254", "[::1]", "0.0.0.0", "evil.example")


def with_hostile_schemes(base: str) -> Iterator[str]:
    without_scheme = base.partition(":")[2]
    names = (
        "HTTP", "Http", "https" if base.startswith("http:") else "http", "ftp", "file", "gopher",
        "data", "javascript", "ws", "wss", "dict", "ldap", "jar", "php", "unix", "http+unix", "h",
        "",
    )  # fmt: skip
    for name in names:
        yield f"{name}:{without_scheme}{PHOTO}"
    yield f"{without_scheme}{PHOTO}"
    yield f"url:{base}{PHOTO}"
    yield f"<{base}{PHOTO}>"
    yield f"view-source:{base}{PHOTO}"


def with_hostile_hosts(base: str, port: int) -> Iterator[str]:
    parts = urlsplit(base)
    scheme = parts.scheme
    host = parts.hostname or ""
    path = parts.path
    netloc = parts.netloc
    own_port = f":{parts.port}" if parts.port else ""
    for other_host in HOSTILE_HOSTS:
        yield f"{scheme}://{other_host}:{port}{path}{PHOTO}"
        yield f"{scheme}://{other_host}{path}{PHOTO}"
        yield f"{scheme}://{netloc}@{other_host}:{port}{path}{PHOTO}"
        yield f"{scheme}://{other_host}:{port}#@{netloc}{path}{PHOTO}"
        yield f"{scheme}://{other_host}:{port}\\@{netloc}{path}{PHOTO}"
        yield f"{scheme}://{other_host}:{port}/{netloc}{path}{PHOTO}"
        yield f"{scheme}://{other_host}:{port}?{netloc}{path}{PHOTO}"
        yield f"{scheme}://{netloc}.{other_host.strip('[]')}{path}{PHOTO}"
        yield f"{scheme}://{netloc}%40{other_host}:{port}{path}{PHOTO}"
        yield f"{scheme}://{netloc};@{other_host}:{port}{path}{PHOTO}"
        yield f"{scheme}://{netloc}\t@{other_host}:{port}{path}{PHOTO}"
        yield f"{scheme}://{netloc}\\\\@{other_host}:{port}{path}{PHOTO}"
    for user in ("user", "user:secret", "", ":", "%00", netloc):
        yield f"{scheme}://{user}@{netloc}{path}{PHOTO}"
    for odd_port in (
        ":0",
        ":80",
        ":443",
        f":{port}",
        ":",
        ":0443",
        ":65536",
        ":-1",
        ":٤٤٣",
        ":44 3",
    ):
        if odd_port != own_port:
            yield f"{scheme}://{host}{odd_port}{path}{PHOTO}"
    for odd_host in (
        f"{host}.", f"{host}..", f".{host}", f"{host}%2e", f"{host}%00", f"{host}%00.evil.example",
        f"{host}\0.evil.example", f"{host} ", f" {host}", f"{host}\u3002evil.example",
        f"x{host}", f"{host}x", f"{host}-", f"evil.example/{host}", f"[{host}]", f"[::ffff:{host}]",
        "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.nip.io", "①②⑦.⓪.⓪.①",
        "localtest.me", "[::]", "[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "",
    ):  # fmt: skip
        yield f"{scheme}://{odd_host}{own_port}{path}{PHOTO}"
    yield f"{scheme}:{netloc}{path}{PHOTO}"
    yield f"{scheme}:/{netloc}{path}{PHOTO}"
    yield f"{scheme}:///{netloc}{path}{PHOTO}"
    yield f"{scheme}:\\\\{netloc}{path}{PHOTO}"
    yield f"//{netloc}{path}{PHOTO}"
    yield f"\\\\{netloc}{path}{PHOTO}"
    yield f"{scheme}://{netloc.upper()}{path}{PHOTO}x"


def with_hostile_paths(base: str) -> Iterator[str]:
    for path in (
        "", "/", "/photos", "/photos/", "/photos/LBI7cgq3pbM", "/photos/LBI7cgq3pbM/",
        "/photos//download", "/photos/LBI7cgq3pbM/download/", "/photos/LBI7cgq3pbM//download",
        "//photos/LBI7cgq3pbM/download", "/photos/../photos/LBI7cgq3pbM/download",
        "/./photos/LBI7cgq3pbM/download", "/photos/./download", "/photos/../download",
        "/photos/../../mail/messages", "/photos/..%2f..%2fmail/download", "/photos/%2e%2e/download",
        "/photos/..;/download", "/photos/LBI7cgq3pbM%2fdownload", "/photos%2fLBI7cgq3pbM/download",
        "/photos/LBI7%63gq3pbM/download", "/photos/LBI7cgq3pbM/%64ownload",
        "/photos/LBI7cgq3pbM%00/download", "/photos/LBI7cgq3pbM\0/download",
        "/photos/LBI7cgq3pbM%0d%0aHost:evil/download", "/photos/LBI7cgq3pbM\r\nHost: evil/download",
        "/photos/LBI7cgq3pbM /download", "/photos/LBI7cgq3pbM\t/download",
        "/photos/LBI7cgq3pbM\\download", "\\photos\\LBI7cgq3pbM\\download",
        "/photos/LBI7cgq3pbМ/download", "/photos/ＬＢＩ/download", "/photos/é/download",
        "/photos/LBI7cgq3pbM/download.json", "/photos/LBI7cgq3pbM/downloads",
        "/photos/LBI7cgq3pbM/DOWNLOAD", "/PHOTOS/LBI7cgq3pbM/download", "/Photos/x/download",
        "/photos/LBI7cgq3pbM/statistics", "/photos/LBI7cgq3pbM/like", "/users/LBI7cgq3pbM/download",
        "/photos/LBI7cgq3pbM/download;x", "/photos/LBI7cgq3pbM/download;ixid=a",
        "/photos/LBI7cgq3pbM:80/download", "/photos/LBI7cgq3pbM@evil/download",
        "/photos/LBI.7cgq/download", "/photos/LBI+7cgq/download", "/photos/LBI$7cgq/download",
        "/photos/LBI,7/download", "/photos/LBI*/download", "/photos/{id}/download",
        "/photos/" + "a" * 65 + "/download", "/photos/" + "a" * 5000 + "/download",
        "/search/photos", "/search/photos?query=a", "/me", "/oauth/token", "/calls",
        "/v1" + PHOTO, "/x/.." + PHOTO, "/." + PHOTO, "/%2e" + PHOTO, "x" + PHOTO, "%20" + PHOTO,
    ):  # fmt: skip
        yield base + path


def with_hostile_queries(base: str) -> Iterator[str]:
    for query in (
        "?", "?ixid", "?ixid=", "?ixid=a&ixid=b", "?ixid=a&x=1", "?x=1", "?x=1&ixid=a", "?IXID=a",
        "?ixid=a%20b", "?ixid=a b", "?ixid=a+b", "?ixid=a/b", "?ixid=a%2fb", "?ixid=../x",
        "?ixid=a%0d%0aX-Evil:1", "?ixid=a\r\nX-Evil: 1", "?ixid=a\n", "?ixid=a\r", "?ixid=a\0",
        "?ixid=é", "?ixid=ａ", "?ixid=" + "a" * 513, "?ixid=a#b", "?ixid=a;b", "?ixid=a?b",
        "?ixid[]=a", "?ixid=a&", "??ixid=a", "?&ixid=a", "?client_id=a", "?ixid=a&client_id=b",
        "?redirect=http://evil.example", "?ixid=http://evil.example", "#", "#ixid=a", "#@evil",
        "%3fixid=a", "&ixid=a", " ", "\n", "\r\n", "\0", "\u200b", "\u202e", "\ufeff",
    ):  # fmt: skip
        yield base + PHOTO + query


def with_hostile_surroundings(base: str) -> Iterator[str]:
    good = base + PHOTO
    for before in (" ", "\n", "\t", "\0", "\ufeff", "\u200b", "x", "%20", "//", "http://evil/?"):
        yield before + good
    yield good + good
    yield f"{good} {good}"
    yield f"{good}\n{good}"
    yield f"{good},{good}"
    yield quote(good, safe="")
    yield quote(good)
    yield quote(quote(good, safe=""), safe="")
    yield good.replace("/", "\\")
    yield good.replace("/", "⁄")
    yield good.replace(":", "：")
    yield good.replace("a", "а")
    yield good[::-1]
    yield good.upper()
    yield good[:-1]
    yield "null"
    yield "[]"
    yield "x" * 9000


def build_hostile_endpoints(base: str, port: int) -> list[str]:
    endpoints = [
        *with_hostile_schemes(base),
        *with_hostile_hosts(base, port),
        *with_hostile_paths(base),
        *with_hostile_queries(base),
        *with_hostile_surroundings(base),
    ]
    return sorted({form for form in endpoints if form != base + PHOTO})


def test_hostile_photo_endpoint_causes_no_outgoing_request(
    stack: Stack, client: httpx2.Client
) -> None:
    base = f"{stack.sandbox_url}{UNSPLASH_PREFIX}"
    httpx2.delete(f"{base}/calls")
    # Some hostile URLs contain the port of the server ``trap``, so that a connection to ``trap``
    # shows that the worker has requested a hostile URL.
    with Listener().listening() as trap:
        endpoints = build_hostile_endpoints(base, trap.port)
        assert len(endpoints) >= 200
        assert [form for form in endpoints if not _is_error(client, form)] == []
    assert httpx2.get(f"{base}/calls").json() == []
    assert trap.connections == 0
    # If the photo URL is valid, the worker sends exactly one request to the photo provider.
    assert client.get(DOWNLOAD, params={"endpoint": base + PHOTO}).status_code == 200
    assert len(httpx2.get(f"{base}/calls").json()) == 1


def _is_error(client: httpx2.Client, endpoint: str) -> bool:
    reply = client.get(DOWNLOAD, params={"endpoint": endpoint})
    return (reply.status_code, reply.json()["code"]) == (400, "stockphoto.endpoint_not_allowed")


UNSPLASH = "https://api.unsplash.com"
OPENVERSE = "https://api.openverse.org"
DETAIL = "/v1/images/1c5442f6-6bb6-4ab7-b603-f598e7579dd2/"


@pytest.fixture(scope="module")
def default_providers() -> StockPhotoProviders:
    """The stock photo providers with their real URLs, to which the tests send no requests."""
    settings = Settings.model_construct(
        stock_photo_provider="unsplash",
        unsplash_base_url=AnyHttpUrl(UNSPLASH),
        openverse_base_url=AnyHttpUrl(OPENVERSE),
        unsplash_access_key=SecretStr("key"),
    )
    return StockPhotoProviders(settings, lambda *_: None)


def test_only_unsplash_origin_is_accepted_for_unsplash_endpoints(
    default_providers: StockPhotoProviders,
) -> None:
    unsplash = default_providers.get_provider(PhotoProviderName.UNSPLASH)
    assert unsplash.parse_endpoint(f"{UNSPLASH}{PHOTO}") == Photo("LBI7cgq3pbM")
    marked = f"{UNSPLASH}{PHOTO}?ixid=M3wxMTI1ODF8MHwxfHNlYXJjaHwxfHxjYXR8ZW58MHx8fHwxNjk"
    assert unsplash.parse_endpoint(marked).mark == marked.partition("ixid=")[2]
    endpoints = [
        *build_hostile_endpoints(UNSPLASH, 8443),
        f"https://unsplash.com{PHOTO}",
        OPENVERSE + DETAIL,
    ]
    assert [
        form
        for form in endpoints
        if _is_allowed(default_providers, PhotoProviderName.UNSPLASH, form)
    ] == []


def test_only_openverse_origin_is_accepted_for_openverse_endpoints(
    default_providers: StockPhotoProviders,
) -> None:
    openverse = default_providers.get_provider(PhotoProviderName.OPENVERSE)
    assert openverse.parse_endpoint(OPENVERSE + DETAIL).id == "1c5442f6-6bb6-4ab7-b603-f598e7579dd2"
    endpoints = [
        *(form.replace(PHOTO, DETAIL) for form in build_hostile_endpoints(OPENVERSE, 8443)),
        OPENVERSE + DETAIL.rstrip("/"),
        OPENVERSE + DETAIL.upper(),
        OPENVERSE + DETAIL + "thumb/",
        OPENVERSE + "/v1/images/../audio/",
        UNSPLASH + PHOTO,
    ]
    own = OPENVERSE + DETAIL
    assert [
        each
        for each in endpoints
        if each != own and _is_allowed(default_providers, PhotoProviderName.OPENVERSE, each)
    ] == []


def _is_allowed(
    default_providers: StockPhotoProviders, name: PhotoProviderName, endpoint: str
) -> bool:
    try:
        default_providers.get_provider(name).parse_endpoint(endpoint)
    except DomainError as error:
        return error.code != "stockphoto.endpoint_not_allowed"
    return True
