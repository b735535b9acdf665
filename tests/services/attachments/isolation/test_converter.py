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

from core.process import confinement
from devstack.harness.polling import eventually
from services.attachments.images.conversion import convert_image
from services.attachments.images.outcome import UnreadableImage
from services.attachments.isolation import converter as process_module
from services.attachments.isolation.child import parse_answer, split_result
from services.attachments.isolation.converter import ConverterProcess
from tests.support.images.samples import encoded, one_of_each, picture, png, rgba_rows

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[4]
MB = 1024 * 1024


def slow_image() -> bytes:
    """Takes about half a second."""
    return encoded(Image.effect_noise((1600, 1200), 90).convert("RGB"), "PNG", compress_level=1)


def assert_works(converter: ConverterProcess) -> None:
    data = one_of_each()["png"]
    assert converter.convert(data) == convert_image(data)


def running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def pid_of(converter: ConverterProcess) -> int:
    assert converter.pid is not None
    return converter.pid


@contextmanager
def signal_soon(pid: int, number: signal.Signals, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, os.kill, (pid, number))
    timer.start()
    yield
    timer.join()


@pytest.mark.parametrize("name", one_of_each())
def test_image_converter_returns_the_same_result_as_direct_conversion(
    converter: ConverterProcess, name: str
) -> None:
    data = one_of_each()[name]
    assert converter.convert(data) == convert_image(data)
    with_renditions = converter.convert(data, with_renditions=True)
    assert with_renditions == convert_image(data, with_renditions=True)
    assert with_renditions.renditions


def test_image_converter_response_with_unknown_or_duplicate_rendition_name_is_rejected(
    converter: ConverterProcess,
) -> None:
    """Code in the child's place could name a file as it likes."""
    answer, files = split_result(convert_image(one_of_each()["png"], with_renditions=True))
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
        killed = pid_of(converter)
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: not running(killed))
        assert_works(converter)


def test_killed_image_converter_fails_only_its_current_image_and_names_the_signal() -> None:
    slow = slow_image()
    with ConverterProcess() as converter:
        assert_works(converter)
        with (
            signal_soon(pid_of(converter), signal.SIGKILL, 0.1),
            pytest.raises(UnreadableImage, match="SIGKILL") as caught,
        ):
            converter.convert(slow)
        assert caught.value.code == "image.crashed"
        assert_works(converter)


@pytest.mark.parametrize("size", [100, 5_000_000], ids=["answer", "request"])
def test_hanging_image_converter_is_killed_after_its_timeout_and_replaced(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConverterProcess() as converter:
        assert_works(converter)
        hung = pid_of(converter)
        os.kill(hung, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(converter._child, "_timeout", 0.5)
            with pytest.raises(UnreadableImage) as caught:
                converter.convert(bytes(size))
        assert caught.value.code == "image.timeout"
        assert not running(hung)
        assert_works(converter)


def test_image_exceeding_converter_memory_fails_without_affecting_the_next_image() -> None:
    large = png(7000, 7000, rgba_rows(7000, 7000, (1, 2, 3, 4)))
    with ConverterProcess(memory_bytes=256 * MB) as converter:
        with pytest.raises(UnreadableImage) as caught:
            converter.convert(large)
        assert caught.value.code == "image.out_of_memory"
        assert_works(converter)


def test_image_converter_memory_returns_to_its_base_level_after_large_photos() -> None:
    photo = encoded(picture(3000, 2000), "JPEG")
    with ConverterProcess() as converter:
        converter.convert(photo)
        for _ in range(4):
            converter.convert(photo)
        eventually(lambda: _resident(pid_of(converter)) < 80 * MB)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_image_converter_is_replaced_after_a_fixed_number_of_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_module, "_IMAGES_PER_CHILD", 2)
    with ConverterProcess() as converter:
        pids = []
        for _ in range(3):
            assert_works(converter)
            pids.append(pid_of(converter))
        assert pids[0] == pids[1] != pids[2]
        assert not running(pids[0])


def test_image_converter_is_replaced_after_its_cpu_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = subprocess.Popen
    tired = (
        "from core.process import child_loop; from services.attachments.isolation import child;"
        " child_loop._MAX_CPU_SECONDS = 0.0; child.main()"
    )

    def started(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        return real([command[0], "-c", tired, *command[3:]], **options)

    monkeypatch.setattr(subprocess, "Popen", started)
    with ConverterProcess() as converter:
        pids = set()
        for _ in range(2):
            assert_works(converter)
            pids.add(pid_of(converter))
    assert len(pids) == 2


def test_image_is_resent_to_a_new_converter_if_the_previous_one_just_exited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, stand_ins = subprocess.Popen, [["true"]]

    def started(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        return real(stand_ins.pop() if stand_ins else command, **options)

    monkeypatch.setattr(subprocess, "Popen", started)
    with ConverterProcess() as converter:
        assert_works(converter)


def test_interrupted_image_conversion_does_not_mix_up_later_results() -> None:
    def too_late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError("the worker's own limit")

    previous = signal.signal(signal.SIGUSR1, too_late)
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
    ("name", "most"),
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
    converter: ConverterProcess, name: str, most: str
) -> None:
    assert_works(converter)
    limits = Path(f"/proc/{converter.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith(name)]
    assert line.removeprefix(name).split()[:2] == [most, most]


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
    """The confined child can open no file, and so import nothing."""
    for name, data in one_of_each().items():
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
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert ran.stdout.split() == [str(len(one_of_each()))]


@contextmanager
def killed_parent(script: str, *words: str) -> Iterator[int]:
    """Run a process that prints its child, and kill it at the end of the block."""
    command = [sys.executable, "-c", script, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout
        yield int(parent.stdout.readline())
        parent.kill()


def test_image_converter_exits_when_its_parent_is_killed_during_or_after_start() -> None:
    script = (
        "from services.attachments.isolation.converter import ConverterProcess; import time\n"
        "c = ConverterProcess(); c.start(); print(c.pid, flush=True); time.sleep(60)"
    )
    for loaded in (False, True):
        with killed_parent(script) as child:
            if loaded:
                eventually(partial(_has_pillow, child))
        eventually(partial(_ended, child))


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
        eventually(lambda: _resident(child) > 60 * MB)
        spent = sum(psutil.Process(child).cpu_times()[:2])
    # The rest of its image takes seconds of a processor.
    assert _spent_until_its_end(child) - spent < 0.5


def _spent_until_its_end(pid: int) -> float:
    spent = 0.0
    while running(pid):
        with suppress(psutil.NoSuchProcess):
            spent = sum(psutil.Process(pid).cpu_times()[:2])
        time.sleep(0.02)
    return spent


def _has_pillow(pid: int) -> bool:
    return "PIL" in Path(f"/proc/{pid}/maps").read_text()


def _ended(pid: int) -> bool:
    return not running(pid)


def test_forked_worker_starts_its_own_image_converter() -> None:
    with ConverterProcess() as converter:
        assert_works(converter)
        ours = converter.pid
        fork = os.fork()
        if fork == 0:
            try:
                assert_works(converter)
                os._exit(0 if converter.pid != ours else 3)
            except BaseException:  # noqa: BLE001 - a fork of pytest must not return into it
                os._exit(4)
        assert os.waitpid(fork, 0)[1] == 0
        assert_works(converter)
        assert converter.pid == ours


def test_closed_image_converter_leaves_no_process_and_can_be_reused() -> None:
    converter = ConverterProcess()
    converter.start()
    first = pid_of(converter)
    converter.close()
    assert not running(first)
    assert_works(converter)
    converter.close()


def test_importing_the_images_package_does_not_load_pillow() -> None:
    script = "import services.attachments.images, sys; sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
