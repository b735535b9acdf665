import copy
import json
from typing import Any

import pytest
from pydantic import SecretStr

from integrations.stock_photos.openverse import Openverse
from integrations.stock_photos.port import StockPhotos
from integrations.stock_photos.unsplash import Unsplash

UNSPLASH = Unsplash("https://api.unsplash.com", SecretStr("key"), lambda *_: None)
OPENVERSE = Openverse("https://api.openverse.org", lambda *_: None)
OPENVERSE_ID = "7c829a03-fb24-4b57-9b03-65f43ed19395"
PAGE_OF_ONE = f"https://api.openverse.org/v1/images/{OPENVERSE_ID}/"
# As the providers' documents have them, without what nobody looks at.
OF_UNSPLASH: dict[str, Any] = {
    "id": "LBI7cgq3pbM",
    "width": 5245,
    "height": 3497,
    "alt_description": "loaf of bread",
    "urls": {"small": "https://images.unsplash.com/photo-1?w=400&ixid=x"},
    "links": {"download_location": "https://api.unsplash.com/photos/LBI7cgq3pbM/download?ixid=x"},
    "user": {"name": "Gilles", "links": {"html": "https://unsplash.com/@gilles"}},
}
OF_OPENVERSE: dict[str, Any] = {
    "title": "A loaf",
    "creator": "Ada",
    "creator_url": "https://www.flickr.com/photos/ada",
    "foreign_landing_url": "https://www.flickr.com/photos/ada/1",
    "license": "by-sa",
    "license_version": "2.0",
    "license_url": "https://creativecommons.org/licenses/by-sa/2.0/",
    "thumbnail": f"{PAGE_OF_ONE}thumb/",
    "detail_url": PAGE_OF_ONE,
    "width": 1024,
    "height": None,
}
PHOTOS = {"unsplash": (UNSPLASH, OF_UNSPLASH), "openverse": (OPENVERSE, OF_OPENVERSE)}
each_provider = pytest.mark.parametrize(("provider", "photo"), PHOTOS.values(), ids=PHOTOS)


def payload(*photos: object) -> str:
    return json.dumps({"results": photos})


def test_unsplash_photo_credits_photographer_and_unsplash_with_referral() -> None:
    [found] = UNSPLASH.parse_photos(payload(OF_UNSPLASH))
    assert (found.small_url, found.shows) == (OF_UNSPLASH["urls"]["small"], "loaf of bread")
    assert (found.width, found.height) == (5245, 3497)
    assert UNSPLASH.parse_endpoint(found.endpoint).id == "LBI7cgq3pbM"
    credit, referral = found.credit, "utm_source=pressroom&utm_medium=referral"
    assert (credit.author, credit.provider) == ("Gilles", "Unsplash")
    assert credit.author_url == f"https://unsplash.com/@gilles?{referral}"
    assert credit.provider_url == f"https://unsplash.com/?{referral}"


def test_openverse_photo_credits_title_creator_and_licence() -> None:
    [found] = OPENVERSE.parse_photos(payload(OF_OPENVERSE))
    assert OPENVERSE.parse_endpoint(found.endpoint).id == OPENVERSE_ID
    assert (found.width, found.height) == (1024, 0)
    credit = found.credit
    assert (credit.title, credit.author, credit.licence) == ("A loaf", "Ada", "CC BY-SA 2.0")
    assert credit.licence_url == OF_OPENVERSE["license_url"]
    [free] = OPENVERSE.parse_photos(payload({**OF_OPENVERSE, "license": "cc0", "creator": None}))
    assert (free.credit.licence, free.credit.author) == ("CC0 2.0", "an unknown author")


@each_provider
@pytest.mark.parametrize(
    "lie",
    [
        "https://evil.example/track.gif",
        "https://images.unsplash.com@evil.example/x",
        "https://images.unsplash.com.evil.example/x",
        "javascript:alert(1)",
        "//images.unsplash.com/x",
        "https://images.unsplash.com\\@evil.example/",
        None,
        7,
    ],
)
def test_photo_with_thumbnail_from_another_host_is_omitted(
    provider: StockPhotos, photo: dict[str, Any], lie: object
) -> None:
    lying = copy.deepcopy(photo) | {"thumbnail": lie, "urls": {"small": lie}}
    assert len(provider.parse_photos(payload(lying, photo))) == 1


@each_provider
def test_photo_with_endpoint_of_another_host_is_omitted(
    provider: StockPhotos, photo: dict[str, Any]
) -> None:
    for lie in ("https://evil.example/photos/x/download", None, {"a": 1}):
        lying = copy.deepcopy(photo) | {"detail_url": lie, "links": {"download_location": lie}}
        assert provider.parse_photos(payload(lying)) == []


@each_provider
def test_photo_credit_links_with_unsafe_scheme_are_removed(
    provider: StockPhotos, photo: dict[str, Any]
) -> None:
    lie = "javascript:alert(1)"
    lying = copy.deepcopy(photo) | {
        "creator_url": lie,
        "license_url": lie,
        "foreign_landing_url": lie,
        "user": {"name": "Ada", "links": {"html": lie}},
    }
    [found] = provider.parse_photos(payload(lying))
    credit = found.credit
    assert (credit.author_url, credit.title_url, credit.licence_url) == (None, None, None)


@each_provider
@pytest.mark.parametrize("odd", ["{}", '{"results": 3}', '{"results": [null, 3, {}, []]}'])
def test_malformed_photo_search_result_yields_no_photos(
    provider: StockPhotos, photo: dict[str, Any], odd: str
) -> None:
    assert photo
    assert provider.parse_photos(odd) == []
