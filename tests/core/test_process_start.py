"""Tests that garbage collection pauses while many objects are created, and runs before a fork."""

import subprocess
import sys

# Records the garbage collections of a process.
_RECORD_COLLECTIONS = """
import gc
from core.process.garbage_collection import begin_start, end_start, freeze_before_fork
searches = []
gc.callbacks.append(lambda phase, _: searches.append(phase))
standard = gc.get_threshold()
"""


def run_code(code: str) -> str:
    """Run Python code in a new process, and return its output."""
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return completed.stdout.strip()


def test_garbage_collection_is_paused_during_process_start() -> None:
    code = """
begin_start()
made = [[] for _ in range(300_000)]
end_start()
print(len(searches), gc.get_freeze_count() > 300_000, gc.get_threshold() == standard)
"""
    assert run_code(_RECORD_COLLECTIONS + code) == "0 True True"


def test_garbage_is_collected_and_objects_are_frozen_before_a_process_forks() -> None:
    code = """
import weakref
class Node: pass
node = Node()
node.itself = node
gone = weakref.ref(node)
del node
freeze_before_fork()
print(gone(), gc.get_freeze_count() > 0)
"""
    assert run_code(_RECORD_COLLECTIONS + code) == "None True"


def test_garbage_is_not_collected_while_documents_are_parsed_in_several_threads() -> None:
    code = """
import gc, threading
import orjson
from core.json_parsing import JsonLimits, parse_json
searches = []
gc.callbacks.append(lambda phase, _: searches.append(phase))
document = b"[" + b"[[]]," * 200_000 + b"1]"
limits = JsonLimits(1_000_000, 1_000_000)
counts = []
def parse_after_another_thread(document):
    thread = threading.Thread(target=parse_json, args=(document, limits))
    thread.start()
    thread.join()
    counts.append(len(searches))
    value = orjson.loads(document)
    counts.append(len(searches))
    return value
parse_json(document, limits, parse=parse_after_another_thread)
print(counts[0] == counts[1], gc.isenabled())
"""
    assert run_code(code) == "True True"
