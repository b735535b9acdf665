"""API and workers may be of different releases: what they send each other keeps its keys."""

from integrations.stock_photos.port import Photo, PhotoProviderName
from services.composer.photos import PhotoSearch, PhotoSearchResult, PhotoUse
from services.composer.post import MetadataField, Post
from services.composer.requests import MetadataRequest, MetadataResult


def test_a_request_for_metadata() -> None:
    wanted = frozenset({MetadataField.TAGS, MetadataField.SLUG})
    request = MetadataRequest(Post("Bees", "They fly."), wanted)
    payload = {"title": "Bees", "content": "They fly.", "wanted": ["slug", "tags"]}
    assert request.to_payload() == payload
    assert MetadataRequest.from_payload(payload) == request


def test_a_result_of_metadata() -> None:
    payload = {"fields": {"slug": "bees"}, "source": "offline"}
    assert MetadataResult.from_payload(payload).to_payload() == payload


def test_a_search_and_its_result() -> None:
    payload = {"provider": "unsplash", "query": "bees", "page": 2, "limit": 10}
    search = PhotoSearch.from_payload(payload)
    assert search == PhotoSearch(PhotoProviderName.UNSPLASH, "bees", 2, 10)
    assert search.to_payload() == payload
    found = {"payload": "{}", "source": "unsplash"}
    assert PhotoSearchResult.from_payload(found).to_payload() == found


def test_a_use_of_a_photo() -> None:
    payload = {"provider": "openverse", "id": "a", "mark": "b"}
    use = PhotoUse.from_payload(payload)
    assert use == PhotoUse(PhotoProviderName.OPENVERSE, Photo("a", "b"))
    assert use.to_payload() == payload
