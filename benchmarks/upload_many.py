"""64 uploads at a time against two plain processes converting the same pictures flat out."""

import multiprocessing
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import httpx2

from benchmarks.measure import Finding, alternate, full_size, median_and_spread, seconds_of
from benchmarks.running_stack import running_stack
from benchmarks.upload import photo
from services.attachments.images.conversion import convert_image

AT_A_TIME = 64
PROCESSES = 2
LEAST_TIMES = 0.85
BAR = "≥ 0.85 ×"
_WAIT_SECONDS = 60
_READY = 2


def run() -> list[Finding]:
    pictures = [photo()] * (2 * AT_A_TIME if full_size() else AT_A_TIME)
    workers = multiprocessing.get_context("spawn")
    with running_stack() as stack, ProcessPoolExecutor(PROCESSES, workers) as plain:
        headers = {
            "Authorization": f"Bearer {stack['demo']['api_key']}",
            "Prefer": f"wait={_WAIT_SECONDS}",
        }
        limits = httpx2.Limits(max_connections=AT_A_TIME)
        with (
            httpx2.Client(
                base_url=stack["api_url"],
                headers=headers,
                timeout=2 * _WAIT_SECONDS,
                limits=limits,
            ) as client,
            ThreadPoolExecutor(AT_A_TIME) as threads,
        ):
            return [_compare(client, threads, plain, pictures)]


def _compare(
    client: httpx2.Client, threads: Executor, plain: Executor, pictures: list[bytes]
) -> Finding:
    def product() -> float:
        return seconds_of(lambda: _upload_all(client, threads, pictures))

    def baseline() -> float:
        return seconds_of(lambda: sum(plain.map(_converted_size, pictures)))

    pairs = alternate(product, baseline, rounds=5 if full_size() else 3)
    ratio, spread = median_and_spread([theirs / mine for mine, theirs in pairs])
    count = len(pictures)
    details = {
        "product_per_s": round(count / median_and_spread([mine for mine, _ in pairs])[0], 2),
        "baseline_per_s": round(count / median_and_spread([theirs for _, theirs in pairs])[0], 2),
        "images": count,
        "upload_bytes": len(pictures[0]),
    }
    name = f"upload-many: {AT_A_TIME} × 12 MP JPEG"
    return Finding(name, ratio, "×", BAR, ratio >= LEAST_TIMES, spread, details)


def _upload_all(client: httpx2.Client, threads: Executor, pictures: list[bytes]) -> None:
    for reply in threads.map(lambda picture: _upload(client, picture), pictures):
        assert reply["status"] == _READY, reply


def _upload(client: httpx2.Client, picture: bytes) -> dict[str, Any]:
    record = _answer(client.post("/attachments", files={"file": ("photo.jpg", picture)}))
    while record["status"] < _READY:  # a machine too busy to do them all while the call waits
        time.sleep(0.1)
        record = _answer(client.get(f"/attachments/{record['hash_id']}"))
    return record


def _answer(reply: httpx2.Response) -> dict[str, Any]:
    assert reply.is_success, reply.text
    record: dict[str, Any] = reply.json()["data"]
    return record


def _converted_size(picture: bytes) -> int:
    """The converted picture stays where it is: sending it back is no part of the baseline."""
    return len(convert_image(picture).data)
