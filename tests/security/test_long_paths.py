"""Requests whose URL path exceeds the maximum length."""

import json
import tracemalloc

import httpx2

from api.middleware.body_limits import find_body_limit
from api.middleware.layers import MAX_PATH_BYTES
from api.middleware.request_records import MAX_LOGGED_PATH_CHARACTERS
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.replies import problem


def test_path_longer_than_two_kilobytes_is_rejected(stranger: httpx2.Client) -> None:
    longest = "/" + "a" * (MAX_PATH_BYTES - 1)
    problem(stranger.get(longest), 404, "route.not_found")
    # The length of the query doesn't count.
    problem(stranger.get(f"{longest}?q={'a' * MAX_PATH_BYTES}"), 404, "route.not_found")
    # A percent-encoded character counts as three bytes.
    for path in (f"{longest}a", "/a" * MAX_PATH_BYTES, "/" + "%61" * (MAX_PATH_BYTES // 3 + 1)):
        reply = stranger.get(path)
        problem(reply, 414, "request.path_too_long")
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_log_truncates_long_path(stack: Stack, stranger: httpx2.Client) -> None:
    name = "logged-path-"
    request_id = stranger.get(f"/{name * 150}").headers["x-request-id"]

    def find_line() -> str | None:
        logs = "".join(running.log.read_text() for running in stack.processes)
        return next((each for each in logs.splitlines() if request_id in each), None)

    # Wait for the log line, because the API writes it only after it has sent the response.
    entry = json.loads(eventually(find_line, what="the line in the log"))
    assert len(entry["path"]) == MAX_LOGGED_PATH_CHARACTERS


def test_finding_the_body_limit_does_not_cache_paths() -> None:
    find_body_limit("/lists")
    tracemalloc.start()
    try:
        for number in range(1_100):
            find_body_limit(f"/{number}/" + "a" * MAX_PATH_BYTES)
        memory_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory_bytes < 100_000
