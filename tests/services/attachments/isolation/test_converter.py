import json
import os
import platform
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
from PIL import Image

from core.errors import MachineBusy
from core.process import confinement
from core.process.linux import measure_cpu_seconds
from devstack.harness.polling import eventually
from services.attachments.images.conversion import convert_image
from services.attachments.images.outcome import UnreadableImage
from services.attachments.isolation import converter as process_module
from services.attachments.isolation.child import parse_answer, split_result
from services.attachments.isolation.converter import ConverterProcess
from tests.support.images.samples import encode_each_format, encoded, picture, png, rgba_rows

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[4]
MEGABYTE = 1024 * 1024


def slow_image() -> bytes:
    """Return an image whose conversion takes about half a second."""
    return encoded(Image.effect_noise((1600, 1200), 90).convert("RGB"), "PNG", compress_level=1)


def assert_works(converter: ConverterProcess) -> None:
    data = encode_each_format()["png"]
    assert converter.convert(data) == convert_image(data)


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def get_pid(converter: ConverterProcess) -> int:
    assert converter.pid is not None
    return converter.pid


@contextmanager
def signal_soon(pid: int, number: signal.Signals, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, os.kill, (pid, number))
    timer.start()
    yield
    timer.join()


@pytest.mark.parametrize("name", encode_each_format())
def test_image_converter_returns_the_same_result_as_direct_conversion(
    converter: ConverterProcess, name: str
) -> None:
    data = encode_each_format()[name]
    assert converter.convert(data) == convert_image(data)
    converted = converter.convert(data, with_renditions=True)
    assert converted == convert_image(data, with_renditions=True)
    assert converted.renditions


def test_image_converter_response_with_unknown_or_duplicate_rendition_name_is_rejected(
    converter: ConverterProcess,
) -> None:
    """A compromised child process could choose any file name."""
    answer, files = split_result(convert_image(encode_each_format()["png"], with_renditions=True))
    answer = json.loads(json.dumps(answer))
    answer["fields"]["renditions"] *= 2
    answer["sizes"] += answer["sizes"][1:]
    data = b"".join((*files, *files[1:]))
    with pytest.raises(ValueError, match="the same name"):
        parse_answer(deepcopy(answer), data)
    answer["fields"]["renditions"][0]["name"] = "../mail"
    with pytest.raises(ValueError, match="not a valid RenditionName"):
        parse_answer(answer, data)


def test_image_converter_exchanges_5_mb_in_both_directions_without_deadlock(
    converter: ConverterProcess,
) -> None:
    noise = Image.frombytes("RGB", (1300, 1300), random.Random(1).randbytes(3 * 1300 * 1300))
    data = encoded(noise, "PNG", compress_level=0)
    assert len(data) > 5_000_000
    assert len(converter.convert(data).data) > 4_000_000


def test_image_converter_killed_while_idle_is_replaced_without_an_error() -> None:
    with ConverterProcess() as converter:
        assert_works(converter)
        killed_pid = get_pid(converter)
        os.kill(killed_pid, signal.SIGKILL)
        eventually(lambda: not is_running(killed_pid))
        assert_works(converter)


def test_killed_image_converter_fails_only_its_current_image_and_names_the_signal() -> None:
    slow = slow_image()
    with ConverterProcess() as converter:
        assert_works(converter)
        with (
            signal_soon(get_pid(converter), signal.SIGKILL, 0.1),
            pytest.raises(UnreadableImage, match="SIGKILL") as error,
        ):
            converter.convert(slow)
        assert error.value.code == "image.crashed"
        assert_works(converter)


@pytest.mark.parametrize("size", [100, 5_000_000], ids=["answer", "request"])
def test_hanging_image_converter_is_killed_and_replaced_without_blaming_the_image(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConverterProcess() as converter:
        assert_works(converter)
        stopped_pid = get_pid(converter)
        os.kill(stopped_pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(converter._child, "_wait_seconds", 0.5)
            with pytest.raises(MachineBusy):
                converter.convert(bytes(size))
        assert not is_running(stopped_pid)
        assert_works(converter)


def test_image_that_takes_too_much_cpu_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = slow_image()
    with ConverterProcess() as converter:
        assert_works(converter)
        killed_pid = get_pid(converter)
        with monkeypatch.context() as patch:
            patch.setattr(converter._child, "_cpu_seconds", 0.1)
            with pytest.raises(UnreadableImage) as error:
                converter.convert(slow)
        assert error.value.code == "image.timeout"
        assert not is_running(killed_pid)
        assert_works(converter)


def test_cpu_limit_of_an_image_counts_neither_pauses_nor_earlier_work_of_its_converter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ConverterProcess() as converter:
        assert_works(converter)
        pid = get_pid(converter)
        earlier_seconds = measure_cpu_seconds(pid)
        monkeypatch.setattr(converter._child, "_cpu_seconds", earlier_seconds / 2)
        os.kill(pid, signal.SIGSTOP)
        with signal_soon(pid, signal.SIGCONT, 2 * earlier_seconds):
            assert_works(converter)
        assert get_pid(converter) == pid


def test_image_exceeding_converter_memory_fails_without_affecting_the_next_image() -> None:
    large = png(7000, 7000, rgba_rows(7000, 7000, (1, 2, 3, 4)))
    with ConverterProcess(memory_bytes=256 * MEGABYTE) as converter:
        with pytest.raises(UnreadableImage) as error:
            converter.convert(large)
        assert error.value.code == "image.out_of_memory"
        assert_works(converter)


def test_image_converter_memory_returns_to_its_base_level_after_large_photos() -> None:
    photo = encoded(picture(3000, 2000), "JPEG")
    with ConverterProcess() as converter:
        converter.convert(photo)
        for _ in range(4):
            converter.convert(photo)
        eventually(lambda: _measure_resident_bytes(get_pid(converter)) < 80 * MEGABYTE)


def _measure_resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_image_converter_is_replaced_after_a_fixed_number_of_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_module, "_IMAGES_PER_CHILD", 2)
    with ConverterProcess() as converter:
        pids = []
        for _ in range(3):
            assert_works(converter)
            pids.append(get_pid(converter))
        assert pids[0] == pids[1] != pids[2]
        assert not is_running(pids[0])


def test_image_converter_is_replaced_after_its_cpu_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_process = subprocess.Popen
    script = (
        "from core.process import child_loop; from services.attachments.isolation import child;"
        " child_loop._MAX_CPU_SECONDS = 0.0; child.main()"
    )

    def start_child_without_cpu_time(
        command: list[str], **options: Any
    ) -> "subprocess.Popen[bytes]":
        return start_process([command[0], "-c", script, *command[3:]], **options)

    monkeypatch.setattr(subprocess, "Popen", start_child_without_cpu_time)
    with ConverterProcess() as converter:
        pids = set()
        for _ in range(2):
            assert_works(converter)
            pids.add(get_pid(converter))
    assert len(pids) == 2


def test_image_is_resent_to_a_new_converter_if_the_previous_one_just_exited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_process = subprocess.Popen
    stand_in_commands = [["true"]]

    def start_stand_in(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        return start_process(stand_in_commands.pop() if stand_in_commands else command, **options)

    monkeypatch.setattr(subprocess, "Popen", start_stand_in)
    with ConverterProcess() as converter:
        assert_works(converter)


def test_interrupted_image_conversion_does_not_mix_up_later_results() -> None:
    def raise_timeout(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError("the worker's own limit")

    previous = signal.signal(signal.SIGUSR1, raise_timeout)
    try:
        with ConverterProcess() as converter:
            assert_works(converter)
            slow = slow_image()
            with signal_soon(os.getpid(), signal.SIGUSR1, 0.1), pytest.raises(TimeoutError):
                converter.convert(slow)
            assert_works(converter)
    finally:
        signal.signal(signal.SIGUSR1, previous)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("Max core file size", "0"),
        ("Max file size", "0"),
        ("Max open files", "0"),
        ("Max processes", "0"),
        ("Max cpu time", str(confinement.MAX_CPU_SECONDS)),
        ("Max address space", str(process_module.MEMORY_BYTES)),
    ],
)
def test_image_converter_runs_with_strict_resource_limits(
    converter: ConverterProcess, name: str, limit: str
) -> None:
    assert_works(converter)
    limits = Path(f"/proc/{converter.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith(name)]
    assert line.removeprefix(name).split()[:2] == [limit, limit]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_image_converter_syscall_filter_exists_for_each_supported_processor(
    monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert confinement.create_decoding_filter().program


def test_unsupported_processor_is_reported_as_missing_syscall_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert confinement.filter_error() is None
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "riscv64" in str(confinement.filter_error())


def test_image_conversion_imports_no_module_at_conversion_time(tmp_path: Path) -> None:
    """The confined child can't open files, so it can't import modules."""
    for name, data in encode_each_format().items():
        (tmp_path / name).write_bytes(data)
    script = (
        "import pathlib, sys, services.attachments.isolation.child\n"
        "from services.attachments.images.conversion import convert_image\n"
        "images = [file.read_bytes() for file in pathlib.Path(sys.argv[1]).iterdir()]\n"
        "before = set(sys.modules)\n"
        "for data in images: convert_image(data, with_renditions=True)\n"
        "print(len(images), *sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert result.stdout.split() == [str(len(encode_each_format()))]


@contextmanager
def killed_parent(script: str, *arguments: str) -> Iterator[int]:
    """Run a process that prints the pid of its child, and yield this pid.

    Kill the process, but not the child, at the end of the block.
    """
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout
        yield int(parent.stdout.readline())
        parent.kill()


def test_image_converter_exits_when_its_parent_is_killed_during_or_after_start() -> None:
    script = (
        "from services.attachments.isolation.converter import ConverterProcess; import time\n"
        "c = ConverterProcess(); c.start(); print(c.pid, flush=True); time.sleep(60)"
    )
    for is_loaded in (False, True):
        with killed_parent(script) as child:
            if is_loaded:
                eventually(partial(_has_pillow, child))
        eventually(partial(_has_ended, child))


def test_busy_image_converter_exits_immediately_when_its_parent_is_killed(
    tmp_path: Path,
) -> None:
    image = tmp_path / "slow.png"
    noise = Image.effect_noise((3000, 3000), 90).convert("RGB")
    image.write_bytes(encoded(noise, "PNG", compress_level=1))
    script = (
        "import sys, pathlib\n"
        "from services.attachments.isolation.converter import ConverterProcess\n"
        "c = ConverterProcess(); c.start(); data = pathlib.Path(sys.argv[1]).read_bytes()\n"
        "print(c.pid, flush=True); c.convert(data)"
    )
    with killed_parent(script, str(image)) as child:
        eventually(lambda: _measure_resident_bytes(child) > 60 * MEGABYTE)
        cpu_seconds = sum(psutil.Process(child).cpu_times()[:2])
    # The converter process must exit instead of converting the rest of the image, which would take
    # seconds of CPU time.
    assert _measure_cpu_seconds_until_end(child) - cpu_seconds < 0.5


def _measure_cpu_seconds_until_end(pid: int) -> float:
    cpu_seconds = 0.0
    while is_running(pid):
        with suppress(psutil.NoSuchProcess):
            cpu_seconds = sum(psutil.Process(pid).cpu_times()[:2])
        time.sleep(0.02)
    return cpu_seconds


def _has_pillow(pid: int) -> bool:
    return "PIL" in Path(f"/proc/{pid}/maps").read_text()


def _has_ended(pid: int) -> bool:
    return not is_running(pid)


def test_forked_worker_starts_its_own_image_converter() -> None:
    with ConverterProcess() as converter:
        assert_works(converter)
        own_pid = converter.pid
        fork_pid = os.fork()
        if fork_pid == 0:
            try:
                assert_works(converter)
                os._exit(0 if converter.pid != own_pid else 3)
            except BaseException:  # noqa: BLE001 - a fork of pytest must not return into it
                os._exit(4)
        assert os.waitpid(fork_pid, 0)[1] == 0
        assert_works(converter)
        assert converter.pid == own_pid


def test_closed_image_converter_leaves_no_process_and_can_be_reused() -> None:
    converter = ConverterProcess()
    converter.start()
    first_pid = get_pid(converter)
    converter.close()
    assert not is_running(first_pid)
    assert_works(converter)
    converter.close()


def test_importing_the_images_package_does_not_load_pillow() -> None:
    script = "import services.attachments.images, sys; sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
