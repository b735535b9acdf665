"""Tests that messages between the API and composer workers keep their JSON keys in all releases."""

from typing import Any

import pytest

from services.composer.photos import PhotoCopy, PhotoSearch, PhotoSearchResult, PhotoUse
from services.composer.requests import MetadataRequest, MetadataResult


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (MetadataRequest, {"title": "Bees", "content": "They fly.", "wanted": ["slug", "tags"]}),
        (MetadataResult, {"fields": {"slug": "bees"}, "source": "offline"}),
        (PhotoSearch, {"provider": "unsplash", "query": "bees", "page": 2, "limit": 10}),
        (PhotoSearchResult, {"payload": "{}", "source": "unsplash"}),
        (PhotoUse, {"provider": "openverse", "id": "a", "mark": "b"}),
        (PhotoCopy, {"provider": "openverse", "id": "a", "mark": "b", "user_id": 7}),
    ],
)
def test_composer_message_keys_are_the_same_in_all_releases(
    kind: Any, payload: dict[str, object]
) -> None:
    assert kind.from_payload(payload).to_payload() == payload
