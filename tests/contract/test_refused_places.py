"""A refusal names the place in the query that it is about."""

import httpx
import pytest

from tests.contract.replies import problem


@pytest.mark.parametrize(
    ("path", "query", "code", "place"),
    [
        ("/lists", {"cursor": "x"}, "cursor.invalid", "query.cursor"),
        ("/lists/{}/subscriptions", {"filter": "{"}, "filter.invalid", "query.filter"),
        (
            "/lists/{}/stats",
            {"from": "2026-11-20", "to": "2026-11-01"},
            "figures.range",
            "query.from",
        ),
    ],
)
def test_a_value_of_the_query_is_refused_by_its_place(
    client: httpx.Client, list_id: int, *, path: str, query: dict[str, str], code: str, place: str
) -> None:
    told = problem(client.get(path.format(list_id), params=query), 400, code)
    assert [each["field"] for each in told["errors"]] == [place]
    assert told["errors"][0]["message"] == told["message"]
