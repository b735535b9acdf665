"""Compares the speed of Pressroom's roster export with COPY, which outputs the same bytes."""

import gzip
import io

from benchmarks.bulk_stack import BulkBench, bulk_bench, create_people
from benchmarks.measure import Finding, alternate, is_full_size, measure_seconds, median_and_spread
from core.scopes import Scope
from devstack.harness.polling import eventually
from services.subscriptions.exports import GZIP_LEVEL

MEMBERS = 1_000_000 if is_full_size() else 200_000
ROUNDS = 3
MIN_SPEEDUP = 0.6


def run() -> list[Finding]:
    with bulk_bench() as bench:
        list_id = bench.new_list()
        bench.add_plainly(list_id, create_people(MEMBERS))
        key = bench.stack.create_key(bench.owner.user_id, Scope.DELIVERY)
        roster = _export(bench, list_id, key)
        _store_lines(bench, gzip.decompress(roster))
        pairs = alternate(
            lambda: measure_seconds(lambda: _export(bench, list_id, key)),
            lambda: measure_seconds(lambda: _copy_lines(bench, len(gzip.decompress(roster)))),
            rounds=ROUNDS,
        )
    ratio, spread = median_and_spread(
        [baseline_time / product_time for product_time, baseline_time in pairs]
    )
    details = {
        "product_per_s": round(
            MEMBERS / median_and_spread([product_time for product_time, _ in pairs])[0]
        ),
        "baseline_per_s": round(
            MEMBERS / median_and_spread([baseline_time for _, baseline_time in pairs])[0]
        ),
        "file_mb": round(len(roster) / 1e6, 1),
    }
    name = f"export-1m: roster of {MEMBERS:,}"
    return [
        Finding(name, ratio, "×", f"≥ {MIN_SPEEDUP:g} ×", ratio >= MIN_SPEEDUP, spread, details)
    ]


def _export(bench: BulkBench, list_id: int, key: str) -> bytes:
    """Export the roster of a list, and return the content of the exported file."""
    with bench.stack.client(key) as client:
        client.timeout = bench.client.timeout
        headers = {"Prefer": "wait=60"}
        reply = client.post(f"/lists/{list_id}/exports", json={"kind": "delivery"}, headers=headers)
        assert reply.is_success, reply.text
        job = reply.json()["data"]

        def ended() -> bool:
            nonlocal job
            job = client.get(f"/jobs/{job['id']}").json()["data"]
            return job["status"] not in {"queued", "running"}

        eventually(ended, within=600, what="the export's end")
        assert job["result"]["rows"] == MEMBERS, job
        return client.get(job["result"]["url"]).content


def _store_lines(bench: BulkBench, text: bytes) -> None:
    """Store the roster in a table from which a plain query returns the same bytes as the export."""
    with bench.plain, bench.plain.cursor() as cursor:
        cursor.execute("CREATE TABLE roster (id bigserial, line text)")
        lines = io.BytesIO(text.replace(b"\\", b"\\\\").replace(b"\r\n", b"\n"))
        cursor.copy_expert("COPY roster (line) FROM STDIN", lines)


def _copy_lines(bench: BulkBench, expected: int) -> None:
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", GZIP_LEVEL, packed) as out, bench.plain.cursor() as cursor:
        cursor.copy_expert("COPY (SELECT line || E'\\r' FROM roster ORDER BY id) TO STDOUT", out)
        bench.plain.rollback()
    # COPY escapes each carriage return as two characters, so its output is longer than the roster.
    assert len(gzip.decompress(packed.getvalue())) == expected + MEMBERS + 1
