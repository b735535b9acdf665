"""Tests that the spans of all processes that handle a call form one trace."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.composer.composer_stack import MODEL_SOURCE, build_unique_post
from tests.support.composer.language_model import LanguageModelRun
from tests.support.http.replies import data
from tests.support.images.pictures import photo
from tests.support.imports.bulk import build_address_file, build_addresses, import_members_file
from tests.support.lists.subscribers import new_list
from tests.support.observability.otlp_collector import Collector, ExportedSpan
from tests.support.observability.traced_calls import COMPOSE, MODEL_RUN, upload

UPLOAD = "POST /attachments"
IMPORT = "POST /lists/{list_id}/imports"

# The `traceparent` header of another program, copied from an example in the W3C's specification.
CALLERS_TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def span_names(trace: list[ExportedSpan]) -> set[str]:
    return {each.name for each in trace}


def find_span(trace: list[ExportedSpan], name: str) -> ExportedSpan:
    [span] = [each for each in trace if each.name == name]
    return span


def contains_spans(*names: str) -> Any:
    """Return a function that checks whether a trace is connected and contains the named spans."""
    return lambda trace: set(names) <= span_names(trace) and is_connected(trace)


def is_connected(trace: list[ExportedSpan]) -> bool:
    """Return whether each span except the root has its parent in the trace."""
    known = {each.span_id for each in trace}
    return [each.parent_id in known for each in trace].count(False) == 1


def test_upload_is_one_trace_from_api_to_media_worker(
    collector: Collector, traced_client: httpx2.Client
) -> None:
    body_count = len(collector.bodies)
    upload(traced_client)
    is_complete = contains_spans(
        "INSERT jobs", "job attachment.process", "convert image", "s3 put", "COMMIT"
    )
    trace = collector.trace(UPLOAD, is_complete, after=body_count)
    root = find_span(trace, UPLOAD)
    job = find_span(trace, "job attachment.process")
    assert (root.kind, root.service) == ("SERVER", "pressroom-api")
    assert root.attributes["http.route"] == "/attachments"
    assert root.attributes["http.response.status_code"] == 200
    assert (job.kind, job.service) == ("CONSUMER", "pressroom-worker-media-bulk")
    assert job.attributes["pressroom.job.attempt"] == 1
    assert job.instance != root.instance
    assert find_span(trace, "convert image").instance == job.instance
    # The API stores the original picture, and the worker stores the converted picture.
    assert {each.instance for each in trace if each.name == "s3 put"} == {
        root.instance,
        job.instance,
    }
    assert not any(each.failed for each in trace)


def test_import_is_one_trace_from_uploaded_file_to_added_members(
    collector: Collector, traced_client: httpx2.Client
) -> None:
    list_id = new_list(traced_client)["id"]
    import_members_file(traced_client, list_id, build_address_file(*build_addresses(3)))
    parts = "INSERT imports", "job members.import", "s3 put", "s3 get", "INSERT subscriptions"
    # After the import, the owner gets a mail.
    trace = collector.trace(IMPORT, contains_spans(*parts, "job account.mail"))
    servers = {"pressroom-api", "pressroom-worker-media-bulk", "pressroom-worker-request-mail"}
    assert {each.service for each in trace} == servers
    assert {each.kind for each in trace if each.name == "job members.import"} == {"CONSUMER"}


def test_composer_call_is_one_trace_from_api_to_llm(
    collector: Collector, traced_client: httpx2.Client
) -> None:
    assert (
        traced_client.post("/composer/metadata", json=build_unique_post()).headers[
            "pressroom-source"
        ]
        == MODEL_SOURCE
    )
    is_complete = contains_spans("send composer.write", "request composer.write", "POST 127.0.0.1")
    trace = collector.trace(COMPOSE, is_complete)
    llm_call = find_span(trace, "POST 127.0.0.1")
    assert (llm_call.kind, llm_call.service) == ("CLIENT", "pressroom-worker-request-mail")
    assert llm_call.attributes["gen_ai.request.model"] == "steered"
    assert llm_call.parent_id == find_span(trace, "request composer.write").span_id


def test_failed_provider_call_is_marked_in_the_trace(
    traced_stack: Stack, collector: Collector, traced_client: httpx2.Client
) -> None:
    run = LanguageModelRun(traced_stack.sandbox_url, MODEL_RUN)
    run.steer("401")
    try:
        reply = traced_client.post("/composer/metadata", json=build_unique_post("failing"))
    finally:
        run.steer(None)
    assert reply.headers["pressroom-source"].startswith("offline")
    is_complete = contains_spans("request composer.write", "POST 127.0.0.1")
    trace = collector.trace(
        COMPOSE, lambda spans: is_complete(spans) and any(each.failed for each in spans)
    )
    assert find_span(trace, "POST 127.0.0.1").attributes["error.type"]
    # The API call succeeded although the call of the language model failed, because Pressroom can
    # write the texts without a language model.
    assert not find_span(trace, COMPOSE).failed


def test_trace_of_the_caller_is_linked_but_not_continued(
    collector: Collector, traced_client: httpx2.Client
) -> None:
    reply = traced_client.get("/lists", headers={"traceparent": CALLERS_TRACEPARENT})
    assert reply.status_code == 200

    def find_linked_spans() -> list[ExportedSpan]:
        return [
            each
            for each in collector.spans()
            if any(bytes(link.trace_id).hex() in CALLERS_TRACEPARENT for link in each.span.links)
        ]

    spans = eventually(find_linked_spans, what="a span with the link")
    assert isinstance(spans, list)
    assert [each.name for each in spans] == ["GET /lists"]
    assert not any(each.trace_id in CALLERS_TRACEPARENT for each in collector.spans())


@pytest.mark.parametrize(
    "traceparent", ["00-zz-1-01", "x" * 4000, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
def test_malformed_traceparent_is_ignored(traced_client: httpx2.Client, traceparent: str) -> None:
    assert traced_client.get("/lists", headers={"traceparent": traceparent}).status_code == 200


def test_health_checks_and_periodic_work_create_no_traces(
    collector: Collector, traced_client: httpx2.Client
) -> None:
    for path in ("/healthz", "/readyz"):
        assert traced_client.get(path).status_code == 200
    body_count = len(collector.bodies)
    traced_client.get("/lists")
    collector.trace("GET /lists", contains_spans("GET /lists"), after=body_count)
    roots = {each.name for each in collector.spans() if not each.parent_id}
    assert all(name.startswith(("GET ", "POST ", "PUT ", "job ")) for name in roots), roots
    assert not any("healthz" in name or "readyz" in name for name in roots)


@pytest.mark.tier("processes")
def test_trace_service_name_can_be_set_by_the_operator(
    traced_stack: Stack, collector: Collector
) -> None:
    body_count = len(collector.bodies)
    with (
        traced_stack.run_second_api(OTEL_SERVICE_NAME="letters") as named_api,
        named_api.client() as client,
    ):
        assert client.get("/nowhere").status_code == 404
    [root] = collector.trace("GET unmatched", contains_spans("GET unmatched"), after=body_count)
    assert (root.service, root.resource["pressroom.process"]) == ("letters", "pressroom-api")


@pytest.mark.tier("processes")
def test_job_sent_by_untraced_process_starts_its_own_trace(
    traced_stack: Stack, collector: Collector
) -> None:
    body_count = len(collector.bodies)
    key = traced_stack.create_owner().key
    with (
        traced_stack.run_second_api(OTEL_SDK_DISABLED="true") as untraced_api,
        untraced_api.client(key) as client,
    ):
        upload(client)
    collector.trace("job attachment.process", contains_spans("convert image"), after=body_count)


def test_log_records_contain_trace_and_span_ids(
    traced_stack: Stack, collector: Collector, traced_client: httpx2.Client
) -> None:
    reply = traced_client.post("/attachments", files={"file": ("logged.jpg", photo())})
    request_id = reply.headers["x-request-id"]

    def find_records() -> list[dict[str, Any]]:
        records = [
            record
            for running in traced_stack.processes
            for record in _read_records(running.log)
            if record.get("request_id") == request_id
        ]
        events = {each["event"] for each in records}
        return records if {"request", "job.ended"} <= events else []

    records = eventually(find_records, what="both processes' records")
    assert isinstance(records, list)
    records_by_event = {each["event"]: each for each in records}
    request = records_by_event["request"]
    job = records_by_event["job.ended"]
    assert request["trace_id"] == job["trace_id"]
    assert request["span_id"] != job["span_id"]
    eventually(
        lambda: (
            {request["span_id"], job["span_id"]}
            <= {each.span_id for each in collector.spans() if each.trace_id == request["trace_id"]}
        ),
        what="the spans of the records",
    )


def _read_records(log: Path) -> list[dict[str, Any]]:
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def test_request_metrics_contain_trace_exemplars_only_in_openmetrics_format(
    traced_stack: Stack, collector: Collector, traced_client: httpx2.Client
) -> None:
    assert data(traced_client.get("/lists")) is not None
    token = traced_stack.environment["PRESSROOM_METRICS_TOKEN"]
    headers = {"Authorization": f"Bearer {token}"}
    plain = traced_client.get("/metrics", headers=headers)
    assert plain.headers["content-type"].startswith("text/plain")
    assert "trace_id" not in plain.text
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    openmetrics = traced_client.get("/metrics", headers={**headers, "Accept": accept})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    lines = [
        line
        for line in openmetrics.text.splitlines()
        if line.startswith("pressroom_request_seconds_bucket") and 'route="/lists"' in line
    ]
    exemplars = [line.partition(" # ")[2] for line in lines if " # " in line]
    assert exemplars
    trace_id = exemplars[0].partition('trace_id="')[2].partition('"')[0]
    eventually(
        lambda: trace_id in {each.trace_id for each in collector.spans()},
        what="the exemplar's trace",
    )
