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
DETAIL_URL = f"https://api.openverse.org/v1/images/{OPENVERSE_ID}/"
# Examples from the providers' documentation, without the fields that Pressroom ignores.
UNSPLASH_PHOTO: dict[str, Any] = {
    "id": "LBI7cgq3pbM",
    "width": 5245,
    "height": 3497,
    "alt_description": "loaf of bread",
    "urls": {"small": "https://images.unsplash.com/photo-1?w=400&ixid=x"},
    "links": {"download_location": "https://api.unsplash.com/photos/LBI7cgq3pbM/download?ixid=x"},
    "user": {"name": "Gilles", "links": {"html": "https://unsplash.com/@gilles"}},
}
OPENVERSE_PHOTO: dict[str, Any] = {
    "title": "A loaf",
    "creator": "Ada",
    "creator_url": "https://www.flickr.com/photos/ada",
    "foreign_landing_url": "https://www.flickr.com/photos/ada/1",
    "license": "by-sa",
    "license_version": "2.0",
    "license_url": "https://creativecommons.org/licenses/by-sa/2.0/",
    "thumbnail": f"{DETAIL_URL}thumb/",
    "detail_url": DETAIL_URL,
    "width": 1024,
    "height": None,
}
PHOTOS = {"unsplash": (UNSPLASH, UNSPLASH_PHOTO), "openverse": (OPENVERSE, OPENVERSE_PHOTO)}
for_each_provider = pytest.mark.parametrize(("provider", "photo"), PHOTOS.values(), ids=PHOTOS)


def build_payload(*photos: object) -> str:
    return json.dumps({"results": photos})


def test_unsplash_photo_credits_photographer_and_unsplash_with_referral() -> None:
    [found_photo] = UNSPLASH.parse_photos(build_payload(UNSPLASH_PHOTO))
    assert (found_photo.small_url, found_photo.shows) == (
        UNSPLASH_PHOTO["urls"]["small"],
        "loaf of bread",
    )
    assert (found_photo.width, found_photo.height) == (5245, 3497)
    assert UNSPLASH.parse_endpoint(found_photo.endpoint).id == "LBI7cgq3pbM"
    credit = found_photo.credit
    referral = "utm_source=pressroom&utm_medium=referral"
    assert (credit.author, credit.provider) == ("Gilles", "Unsplash")
    assert credit.author_url == f"https://unsplash.com/@gilles?{referral}"
    assert credit.provider_url == f"https://unsplash.com/?{referral}"


def test_openverse_photo_credits_title_creator_and_licence() -> None:
    [found_photo] = OPENVERSE.parse_photos(build_payload(OPENVERSE_PHOTO))
    assert OPENVERSE.parse_endpoint(found_photo.endpoint).id == OPENVERSE_ID
    assert (found_photo.width, found_photo.height) == (1024, 0)
    credit = found_photo.credit
    assert (credit.title, credit.author, credit.licence) == ("A loaf", "Ada", "CC BY-SA 2.0")
    assert credit.licence_url == OPENVERSE_PHOTO["license_url"]
    [cc0_photo] = OPENVERSE.parse_photos(
        build_payload({**OPENVERSE_PHOTO, "license": "cc0", "creator": None})
    )
    assert (cc0_photo.credit.licence, cc0_photo.credit.author) == ("CC0 2.0", "an unknown author")


@for_each_provider
@pytest.mark.parametrize(
    "bad_url",
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
    provider: StockPhotos, photo: dict[str, Any], bad_url: object
) -> None:
    bad_photo = copy.deepcopy(photo) | {"thumbnail": bad_url, "urls": {"small": bad_url}}
    assert len(provider.parse_photos(build_payload(bad_photo, photo))) == 1


@pytest.mark.parametrize("bad_url", ["https://evil.example/photos/x/download", None, {"a": 1}])
@for_each_provider
def test_photo_with_endpoint_of_another_host_is_omitted(
    provider: StockPhotos, photo: dict[str, Any], bad_url: str | dict[str, Any] | None
) -> None:
    bad_photo = copy.deepcopy(photo) | {
        "detail_url": bad_url,
        "links": {"download_location": bad_url},
    }
    assert provider.parse_photos(build_payload(bad_photo)) == []


@for_each_provider
def test_photo_credit_links_with_unsafe_scheme_are_removed(
    provider: StockPhotos, photo: dict[str, Any]
) -> None:
    bad_url = "javascript:alert(1)"
    bad_photo = copy.deepcopy(photo) | {
        "creator_url": bad_url,
        "license_url": bad_url,
        "foreign_landing_url": bad_url,
        "user": {"name": "Ada", "links": {"html": bad_url}},
    }
    [found_photo] = provider.parse_photos(build_payload(bad_photo))
    credit = found_photo.credit
    assert (credit.author_url, credit.title_url, credit.licence_url) == (None, None, None)


@for_each_provider
@pytest.mark.parametrize(
    "malformed_payload", ["{}", '{"results": 3}', '{"results": [null, 3, {}, []]}']
)
def test_malformed_photo_search_result_yields_no_photos(
    provider: StockPhotos, photo: dict[str, Any], malformed_payload: str
) -> None:
    assert photo
    assert provider.parse_photos(malformed_payload) == []
