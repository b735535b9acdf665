"""Tests that the log of API requests stays complete if the database fails or an API stops."""

import pytest

from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.probe.bench import Bench

COUNT_RECORDED = """
SELECT count(*) FROM api_requests JOIN api_keys ON api_keys.id = key_id WHERE user_id = %s
"""
REQUEST_COUNT = 20


def call_often(stack: Stack, key: str) -> None:
    with stack.client(key) as client:
        for _ in range(REQUEST_COUNT):
            data(client.get("/users/me"))


@pytest.mark.tier("fast")
def test_requests_before_a_database_outage_are_recorded_once_after_it(
    probes: Bench, api: Running, postgres_proxy: Proxy
) -> None:
    stack = probes.stack
    owner = stack.create_owner()
    call_often(stack, owner.key)
    with postgres_proxy.misbehaving(Proxy.refuse):
        recorded = stack.query(COUNT_RECORDED, owner.user_id)
        eventually(lambda: "api_requests.not_written" in api.log.read_text(), what="the failure")
        assert stack.query(COUNT_RECORDED, owner.user_id) == recorded
    eventually(
        lambda: stack.query(COUNT_RECORDED, owner.user_id) == [(REQUEST_COUNT,)],
        what="the requests",
    )


@pytest.mark.tier("fast")
def test_requests_before_the_database_hangs_are_recorded_afterwards(
    probes: Bench, api: Running, postgres_proxy: Proxy
) -> None:
    stack = probes.stack
    owner = stack.create_owner()
    call_often(stack, owner.key)
    with postgres_proxy.misbehaving(Proxy.hang), stack.client() as client:
        eventually(lambda: client.get("/readyz").status_code == 503, what="the outage")
        assert client.get("/healthz").status_code == 200
    eventually(
        lambda: stack.query(COUNT_RECORDED, owner.user_id) == [(REQUEST_COUNT,)],
        what="the requests",
    )


@pytest.mark.tier("fast")
def test_stopped_api_process_records_its_last_requests(probes: Bench) -> None:
    owner = probes.stack.create_owner()
    with probes.stack.run_second_api(None) as stack:
        call_often(stack, owner.key)
    assert probes.stack.query(COUNT_RECORDED, owner.user_id) == [(REQUEST_COUNT,)]
