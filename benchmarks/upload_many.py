"""Compares the speed of concurrent uploads with the speed of converting images in two processes."""

import multiprocessing
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import httpx2

from benchmarks.measure import Finding, alternate, is_full_size, measure_seconds, median_and_spread
from benchmarks.running_stack import running_stack
from benchmarks.upload import create_photo
from services.attachments.images.conversion import convert_image

AT_A_TIME = 64
PROCESSES = 2
MIN_SPEEDUP = 0.85
BAR = "≥ 0.85 ×"
_WAIT_SECONDS = 60
_READY = 2


def run() -> list[Finding]:
    pictures = [create_photo()] * (2 * AT_A_TIME if is_full_size() else AT_A_TIME)
    workers = multiprocessing.get_context("spawn")
    with running_stack() as stack, ProcessPoolExecutor(PROCESSES, workers) as processes:
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
            return [_compare(client, threads, processes, pictures)]


def _compare(
    client: httpx2.Client, threads: Executor, processes: Executor, pictures: list[bytes]
) -> Finding:
    def product() -> float:
        return measure_seconds(lambda: _upload_all(client, threads, pictures))

    def baseline() -> float:
        return measure_seconds(lambda: sum(processes.map(_converted_size, pictures)))

    pairs = alternate(product, baseline, rounds=5 if is_full_size() else 3)
    ratio, spread = median_and_spread(
        [baseline_time / product_time for product_time, baseline_time in pairs]
    )
    count = len(pictures)
    details = {
        "product_per_s": round(
            count / median_and_spread([product_time for product_time, _ in pairs])[0], 2
        ),
        "baseline_per_s": round(
            count / median_and_spread([baseline_time for _, baseline_time in pairs])[0], 2
        ),
        "images": count,
        "upload_bytes": len(pictures[0]),
    }
    name = f"upload-many: {AT_A_TIME} × 12 MP JPEG"
    return Finding(name, ratio, "×", BAR, ratio >= MIN_SPEEDUP, spread, details)


def _upload_all(client: httpx2.Client, threads: Executor, pictures: list[bytes]) -> None:
    for reply in threads.map(lambda picture: _upload(client, picture), pictures):
        assert reply["status"] == _READY, reply


def _upload(client: httpx2.Client, picture: bytes) -> dict[str, Any]:
    record = _read_record(client.post("/attachments", files={"file": ("photo.jpg", picture)}))
    # Poll the image, because on a slow machine some conversions exceed the API's maximum wait.
    while record["status"] < _READY:
        time.sleep(0.1)
        record = _read_record(client.get(f"/attachments/{record['hash_id']}"))
    return record


def _read_record(reply: httpx2.Response) -> dict[str, Any]:
    assert reply.is_success, reply.text
    record: dict[str, Any] = reply.json()["data"]
    return record


def _converted_size(picture: bytes) -> int:
    """Convert a picture without uploading it, and return only the size of the result.

    The converted picture isn't returned, because its transfer between processes would be measured
    too.
    """
    return len(convert_image(picture).data)
