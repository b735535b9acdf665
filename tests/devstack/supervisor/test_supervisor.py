import json
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import psycopg2
import pytest

from core.settings.given_settings import variable_of
from core.settings.process_settings import list_settings
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.supervisor.programs import WORKERS, is_responding
from tests.support.documents.markdown import ROOT
from tests.support.stack.ordinary_user import OrdinaryUser
from tests.support.stack.waiting import is_running, list_users

pytestmark = pytest.mark.stack

PROCESSES = {
    "postgres", "valkey", "s3", "api", "worker-waiting", "worker-computing",
    "flower", "sandbox", "supervisor",
}  # fmt: skip


@dataclass
class Stack:
    home: Path
    variables: dict[str, str]

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *words],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **self.variables},
        )

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cli.main", "up"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.variables},
        )

    def is_ready_under(self, supervisor: int) -> bool:
        # If the supervisor is killed, its run.json stays until the next supervisor starts.
        file = self.home / "run.json"
        return file.exists() and self.run["pids"]["supervisor"] == supervisor

    @property
    def run(self) -> dict[str, Any]:
        run: dict[str, Any] = json.loads((self.home / "run.json").read_text())
        return run


def stack_at(home: Path) -> Stack:
    variables = {
        "PRESSROOM_HOME": str(home),
        "PORT": str(free_port()),
        "FLOWER_PORT": str(free_port()),
    }
    return Stack(home, variables)


@pytest.fixture(scope="module")
def stack_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack") / "home"


@pytest.fixture(scope="module", autouse=True)
def _share_compiled_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the tested commands a common cache of compiled modules, so that they start faster."""
    with pytest.MonkeyPatch.context() as patch:
        if sys.dont_write_bytecode:
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
            patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        yield


@pytest.fixture(scope="module")
def local_stack(stack_home: Path) -> Iterator[Stack]:
    stack = stack_at(stack_home)
    try:
        yield stack
    finally:
        stopped = stack.command("down")
    assert stopped.returncode == 0
    assert list_users(stack_home) == []


@pytest.fixture
def running_stack(local_stack: Stack) -> Stack:
    """A local development stack, which the fixture starts unless it is already running."""
    if not (local_stack.home / "run.json").exists():
        started = local_stack.command("up", "--detach", "--json")
        assert started.returncode == 0, started.stderr
        assert json.loads(started.stdout) == local_stack.run
    return local_stack


def test_run_json_contains_addresses_and_logins_of_all_services(running_stack: Stack) -> None:
    run = running_stack.run
    assert set(run["pids"]) == PROCESSES
    assert all(map(is_running, run["pids"].values()))
    assert stat.S_IMODE((running_stack.home / "run.json").stat().st_mode) == 0o600
    assert httpx2.get(run["api_url"] + "/readyz").status_code == 200
    assert httpx2.get(run["sandbox_url"] + "/healthz").status_code == 200
    assert httpx2.get(run["mailbox_url"]).status_code == 200
    assert "database: up" in httpx2.get(run["status_url"], timeout=30).text
    assert httpx2.get(run["flower_url"]).status_code == 401
    login = (run["flower_user"], run["flower_password"])
    assert httpx2.get(run["flower_url"], auth=login, follow_redirects=True).status_code == 200
    assert set(run["s3"]) == {"endpoint", "access_key", "secret_key", "bucket"}


def test_panel_and_status_page_name_the_documentation_of_the_checkout(
    running_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    page = str(ROOT / "docs" / "README.md")
    assert page in running_stack.command("up", "--detach").stdout
    assert page in httpx2.get(running_stack.run["status_url"], timeout=30).text


@pytest.mark.tier("processes")
def test_devstack_processes_get_exactly_the_settings_they_need(
    running_stack: Stack,
) -> None:
    own = {"PRESSROOM_READY_FILE", "PRESSROOM_ALIVE_FILE", "PRESSROOM_WORKER_METRICS_ADDRESS"}
    needs = {
        "api": list_settings("serve"),
        "flower": list_settings("flower"),
        **{name: list_settings("worker", queues) for name, queues in WORKERS.items()},
    }
    for name, needed in needs.items():
        process = psutil.Process(running_stack.run["pids"][name])
        expected = set(map(variable_of, needed)) & (set(running_stack.run["settings"]) | own)
        for each in (process, *process.children(recursive=True)):
            variables = {word for word in each.environ() if word.startswith("PRESSROOM_")}
            assert variables == expected, each


@pytest.mark.tier("processes")
def test_every_queue_of_the_devstack_works_with_its_restricted_settings(
    running_stack: Stack,
) -> None:
    demo = running_stack.run["demo"]
    url = running_stack.run["api_url"]
    headers = {"X-API-Key": demo["api_key"], "Prefer": "wait=30"}
    with httpx2.Client(base_url=url, headers=headers, timeout=60.0) as client:
        lists = f"/lists/{demo['list_id']}"
        photo = (running_stack.home / "sample.jpg").read_bytes()
        calls = {
            "media": client.post("/attachments", files={"file": ("p.jpg", photo)}),
            "bulk": client.post(f"{lists}/imports", files={"file": ("m.csv", b"a@example.com\n")}),
            "export": client.post(f"{lists}/exports", json={"kind": "members"}),
            "request": client.get("/composer/stockphoto/photos/search", params={"query": "tree"}),
            "money": client.post(
                "/auxilia/credits/topup",
                json={"amount": 5, "redirect_url": "http://localhost/done"},
            ),
            "mail": client.post("/apikeys", json={"name": "one more"}),
        }
        assert {queue: reply.status_code for queue, reply in calls.items()} == dict.fromkeys(
            calls, 200
        )
        for queue in ("bulk", "export"):
            assert calls[queue].json()["data"]["status"] == "succeeded"
        assert client.get(calls["export"].json()["data"]["result"]["url"]).status_code == 200
        assert (
            calls["money"]
            .json()["data"]["payment_url"]
            .startswith(running_stack.run["sandbox_url"])
        )
        mailbox = f"{running_stack.run['mailbox_url']}/messages"
        eventually(lambda: client.get(mailbox, params={"to": demo["email"]}).json())


def test_devstack_api_verifies_challenges_in_the_sandbox(running_stack: Stack) -> None:
    variables = Path(f"/proc/{running_stack.run['pids']['api']}/environ").read_text().split("\0")
    settings = dict(each.split("=", 1) for each in variables if each.startswith("PRESSROOM_"))
    assert settings["PRESSROOM_CHALLENGE_HOSTNAMES"] == "localhost"
    for provider in ("TURNSTILE", "HCAPTCHA", "RECAPTCHA"):
        url = settings[f"PRESSROOM_{provider}_URL"]
        assert url.startswith(running_stack.run["sandbox_url"])
        form = {"secret": settings[f"PRESSROOM_{provider}_SECRET"], "response": "pass-supervised"}
        assert httpx2.post(url, data=form).json()["success"] is True


def test_devstack_api_and_sandbox_share_payment_url_and_webhook_secret(
    running_stack: Stack,
) -> None:
    environment = psutil.Process(running_stack.run["pids"]["api"]).environ()
    url = environment["PRESSROOM_PAYMENTS_SANDBOX_URL"]
    assert url.startswith(running_stack.run["sandbox_url"])
    headers = {"Authorization": f"Bearer {environment['PRESSROOM_PAYMENTS_SANDBOX_SECRET_KEY']}"}
    # If the sandbox had another key than the API, the status would be 401.
    assert httpx2.get(f"{url}/v1/payment_intents/pi_none", headers=headers).status_code == 404
    sandbox = psutil.Process(running_stack.run["pids"]["sandbox"])
    secret_name = "PRESSROOM_PAYMENTS_SANDBOX_WEBHOOK_SECRET"
    assert sandbox.environ()[secret_name] == environment[secret_name]
    assert f"{running_stack.run['api_url']}/webhooks/stripe" in sandbox.cmdline()
    assert not [each for each in sandbox.cmdline() if environment[secret_name] in each]


def test_demo_owner_has_the_paid_plan_and_the_demo_list(running_stack: Stack) -> None:
    demo = running_stack.run["demo"]
    assert demo["email"] == "demo@pressroom.example"
    assert demo["list_slug"] == "the-daily-demo"
    with psycopg2.connect(running_stack.run["database_url"]) as session, session.cursor() as cursor:
        cursor.execute(
            "SELECT users.plan, lists.slug FROM users JOIN lists ON lists.user_id = users.id "
            "WHERE users.id = %s AND lists.id = %s",
            (demo["user_id"], demo["list_id"]),
        )
        assert cursor.fetchall() == [("paid", "the-daily-demo")]


@pytest.mark.tier("fast", "processes")
def test_demo_owner_can_spend_demo_credits(running_stack: Stack) -> None:
    with demo_client(running_stack) as client:
        charge = {"amount_credit": 0.25, "source_id": "post-17"}
        reply = client.post("/auxilia/credits/consume", json=charge)
        assert reply.status_code == 200, reply.text
        assert reply.json()["data"]["balance_after"] == 99.75


def demo_client(running_stack: Stack) -> httpx2.Client:
    key = {"X-API-Key": running_stack.run["demo"]["api_key"]}
    return httpx2.Client(base_url=running_stack.run["api_url"], headers=key, timeout=60.0)


@pytest.mark.tier("processes")
def test_commands_use_the_running_devstack_unless_settings_name_another(
    running_stack: Stack,
) -> None:
    completed = running_stack.command("users", "list", "--json")
    assert completed.returncode == 0, completed.stderr
    emails = {user["email"] for user in json.loads(completed.stdout)}
    assert "demo@pressroom.example" in emails
    created = running_stack.command(
        "keys", "create", "demo@pressroom.example", "--name", "cli", "--json"
    )
    key = json.loads(created.stdout)["key"]
    me = httpx2.get(f"{running_stack.run['api_url']}/users/me", headers={"X-API-Key": key})
    assert me.json()["data"]["email"] == "demo@pressroom.example"
    variables_of_other_stack = {
        **running_stack.variables,
        "PRESSROOM_DATABASE_URL": "postgresql://x@127.0.0.1:1/x",
    }
    failed = Stack(running_stack.home, variables_of_other_stack).command("users", "list")
    assert failed.returncode == 2
    assert "PRESSROOM_REDIS_URL" in failed.stderr


@pytest.mark.tier("processes")
def test_additional_worker_connects_to_the_running_devstack(
    running_stack: Stack, tmp_path: Path
) -> None:
    ready_file = tmp_path / "ready"
    worker = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "worker", "--queue", "mail", "--queue", "request"],
        env={**os.environ, **running_stack.variables, "PRESSROOM_READY_FILE": str(ready_file)},
    )
    try:
        eventually(ready_file.exists)
        environment = psutil.Process(worker.pid).environ()
        assert "PRESSROOM_REDIS_URL" not in environment
        worker.terminate()
        assert worker.wait(30) == 0
    finally:
        worker.kill()


@pytest.mark.tier("processes")
def test_printed_curl_command_uploads_a_picture(running_stack: Stack) -> None:
    output = running_stack.command("up").stdout
    line = next(line for line in output.splitlines() if line.startswith("curl "))
    words = [*shlex.split(line), "-o", os.devnull, "-w", "%{http_code}"]
    completed = subprocess.run(words, check=True, capture_output=True, text=True)
    assert completed.stdout in {"200", "201", "202"}


def test_second_pressroom_up_reports_the_running_devstack_and_changes_nothing(
    running_stack: Stack,
) -> None:
    before = running_stack.run
    second = running_stack.command("up")
    assert second.returncode == 0
    assert "already running" in second.stdout
    assert before["api_url"] in second.stdout
    assert running_stack.run == before


def test_pressroom_up_prints_a_login_link_that_works_and_is_in_no_log(
    running_stack: Stack,
) -> None:
    run = running_stack.run
    panel = running_stack.command("up").stdout
    [link] = re.findall(r"^(http\S+/login/link\?token=\S+)$", panel, re.MULTILINE)
    assert link != run["demo"]["login_link"]
    with httpx2.Client() as browser:
        form = dict(re.findall(r'name="(\w+)" value="([^"]+)"', browser.get(link).text))
        reply = browser.post(f"{run['api_url']}/login/link", data=form)
        assert (reply.status_code, reply.headers["location"]) == (303, f"{run['api_url']}/console")
        assert browser.get(f"{run['api_url']}/console").status_code == 200
    tokens = {link.partition("token=")[2], run["demo"]["login_link"].partition("token=")[2]}
    for log in (running_stack.home / "logs").iterdir():
        text = log.read_text(errors="replace")
        assert not [each for each in (*tokens, run["demo"]["password"]) if each in text], log


@pytest.mark.tier("processes")
def test_commands_that_start_the_devstack_at_once_print_its_login_into_no_log(
    tmp_path: Path,
) -> None:
    stack = stack_at(tmp_path / "home")
    command = [sys.executable, "-m", "cli.main", "up", "--detach"]
    environment = {**os.environ, **stack.variables}
    starts = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    try:
        outputs = [each.communicate()[0] for each in starts]
        assert [each.returncode for each in starts] == [0, 0]
        demo = stack.run["demo"]
        for output in outputs:
            assert demo["password"] in output
            assert "/login/link?token=" in output
        for log in (stack.home / "logs").iterdir():
            text = log.read_text(errors="replace")
            assert not [each for each in (demo["password"], "login/link?token=") if each in text]
    finally:
        assert stack.command("down").returncode == 0


@pytest.mark.tier("processes")
def test_pressroom_up_shows_the_running_devstack_while_its_database_hangs(
    running_stack: Stack,
) -> None:
    run = running_stack.run
    postgres = psutil.Process(run["pids"]["postgres"])
    postgres.suspend()
    try:
        completed = running_stack.command("up")
    finally:
        postgres.resume()
    assert completed.returncode == 0, completed.stderr
    assert run["demo"]["password"] in completed.stdout
    assert "/login/link?token=" not in completed.stdout
    assert "No login link was created. The database may be unavailable" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_last_line_of_the_panel_names_a_command_that_can_be_run(running_stack: Stack) -> None:
    panel = running_stack.command("up").stdout
    [words] = re.findall(r"Stop with Ctrl-C or `(.+) down`", panel)
    [command] = shlex.split(words)
    assert Path(shutil.which(command) or "").name == "pressroom"


def test_pressroom_status_shows_every_running_process(running_stack: Stack) -> None:
    completed = running_stack.command("status", "--json")
    assert completed.returncode == 0
    status = json.loads(completed.stdout)
    assert set(status["processes"]) == PROCESSES
    assert {each["state"] for each in status["processes"].values()} == {"running"}
    assert all(each["uptime_seconds"] > 0 for each in status["processes"].values())
    printed = running_stack.command("status").stdout
    assert "worker-computing" in printed
    assert f"{running_stack.run['api_url']}/console" in printed


@pytest.mark.tier("processes")
def test_pressroom_status_sets_the_variables_of_the_examples_in_a_shell(
    running_stack: Stack,
) -> None:
    printed = running_stack.command("status", "--shell")
    assert printed.returncode == 0, printed.stderr
    script = 'eval "$1"; env -u _'
    completed = subprocess.run(
        ["bash", "-euc", script, "bash", printed.stdout],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    run = running_stack.run
    assert {
        f"API={run['api_url']}",
        f"KEY={run['demo']['api_key']}",
        f"SANDBOX={run['sandbox_url']}",
    } <= set(completed.stdout.splitlines())


@pytest.mark.tier("processes")
@pytest.mark.parametrize(
    "name",
    [
        "postgres",
        "valkey",
        "s3",
        "worker-computing",
        pytest.param("api", marks=pytest.mark.tier("fast")),
    ],
)
def test_killed_devstack_process_is_restarted(running_stack: Stack, name: str) -> None:
    killed_pid = running_stack.run["pids"][name]
    os.kill(killed_pid, signal.SIGKILL)
    eventually(lambda: running_stack.run["pids"].get(name, killed_pid) != killed_pid)
    log = running_stack.home / "logs" / "supervisor.log"
    eventually(
        lambda: (
            f"{name} is running again (pid {running_stack.run['pids'][name]})" in log.read_text()
        )
    )
    assert f"{name} was killed by SIGKILL" in log.read_text()
    eventually(lambda: is_responding(int(running_stack.variables["PORT"]), "/readyz"))


@pytest.mark.tier("processes")
def test_killed_devstack_leaves_no_process_and_restarts_with_the_same_data(
    running_stack: Stack,
) -> None:
    killed_run = running_stack.run
    os.kill(killed_run["pids"]["supervisor"], signal.SIGKILL)
    eventually(lambda: list_users(running_stack.home) == [])
    assert running_stack.command("status").returncode == 3

    process = running_stack.start()
    eventually(lambda: running_stack.is_ready_under(process.pid), within=60)
    # The restarted devstack has the same demo data and keys, but a new login link, and has not
    # granted the demo credits again.
    new_link = {"login_link": running_stack.run["demo"]["login_link"]}
    assert running_stack.run["demo"] == killed_run["demo"] | new_link
    assert new_link["login_link"] != killed_run["demo"]["login_link"]
    with demo_client(running_stack) as client:
        entries = client.get("/auxilia/credits/ledger").json()["data"]["items"]
        assert [each["action"] for each in entries] == ["consume", "grant"]
    assert running_stack.run["database_url"] == killed_run["database_url"]

    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert not (running_stack.home / "run.json").exists()
    assert list_users(running_stack.home) == []


# Slows down the exit of the supervisor, as on a busy machine.
SLOW_EXIT = """
import atexit, sys, time
if "devstack" in sys.orig_argv:
    atexit.register(time.sleep, 3)
"""


@pytest.mark.tier("processes")
def test_pressroom_down_waits_until_the_supervisor_has_exited(tmp_path: Path) -> None:
    stack = stack_at(tmp_path / "home")
    (tmp_path / "sitecustomize.py").write_text(SLOW_EXIT)
    stack.variables["PYTHONPATH"] = str(tmp_path)
    started = stack.command("up", "--detach")
    assert started.returncode == 0, started.stderr
    assert stack.command("down").returncode == 0
    assert list_users(stack.home) == []


@pytest.mark.tier("processes")
def test_ctrl_c_during_start_stops_the_devstack(tmp_path: Path) -> None:
    stack = stack_at(tmp_path / "home")
    process = stack.start()
    eventually((stack.home / "logs" / "valkey.log").exists)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert list_users(stack.home) == []


@pytest.mark.tier("processes")
@pytest.mark.parametrize(
    "setting", [pytest.param("PORT", marks=pytest.mark.tier("fast")), "FLOWER_PORT"]
)
def test_occupied_port_is_reported_before_any_program_starts(tmp_path: Path, setting: str) -> None:
    stack = stack_at(tmp_path / "home")
    with socket.create_server(("127.0.0.1", int(stack.variables[setting]))):
        for words in (["up"], ["up", "--detach"]):
            completed = stack.command(*words)
            assert completed.returncode == 2
            assert f"Port {stack.variables[setting]} is taken" in completed.stderr
            assert f"set {setting}" in completed.stderr
    assert not (stack.home / "postgres").exists()
    assert list_users(stack.home) == []


def test_failed_prepare_ends_the_stack_and_shows_the_reason(tmp_path: Path) -> None:
    stack = stack_at(tmp_path / "home")
    # Nothing listens on port 1.
    stack.variables["PRESSROOM_DATABASE_URL"] = "postgresql://app:x@127.0.0.1:1/app"
    completed = stack.command("up")
    assert completed.returncode == 1
    assert "prepare does not start: it ended with code 1." in completed.stderr
    assert "port 1 failed: Connection refused" in completed.stderr
    assert "restarts" not in completed.stdout
    assert (stack.home / "logs" / "prepare.log").read_text().count("Background on") == 1
    assert list_users(stack.home) == []


# Lowers the supervisor's time limit to five seconds. Each worker computes until the supervisor has
# logged that the start takes longer than this limit.
SLOW_WORKER_START = """
import os, re, sys
from pathlib import Path
if "worker" in sys.orig_argv:
    log = Path(os.environ["SUPERVISOR_LOG"])
    while not re.search("Still starting after ([6-9]|[1-9][0-9]+) s", log.read_text()): pass
if "devstack" in sys.orig_argv:
    from devstack.supervisor import start_progress
    start_progress.MAX_STALLED_SECONDS = 5.0
    start_progress._REPORT_SECONDS = 1.0
"""


@pytest.mark.tier("processes")
def test_stack_waits_for_a_program_that_computes_longer_than_the_time_limit(
    tmp_path: Path,
) -> None:
    stack = stack_at(tmp_path / "home")
    (tmp_path / "sitecustomize.py").write_text(SLOW_WORKER_START)
    log = stack.home / "logs" / "supervisor.log"
    stack.variables |= {"PYTHONPATH": str(tmp_path), "SUPERVISOR_LOG": str(log)}
    started = stack.command("up", "--detach")
    try:
        assert started.returncode == 0, started.stderr
        assert re.search("Still starting after .*worker-computing", log.read_text())
    finally:
        assert stack.command("down").returncode == 0


def test_status_and_down_report_that_no_devstack_is_running(tmp_path: Path) -> None:
    stack = stack_at(tmp_path / "home")
    assert stack.command("status").returncode == 3
    assert json.loads(stack.command("status", "--json").stdout)["status"] == "stopped"
    shell_status = stack.command("status", "--shell")
    assert (shell_status.returncode, shell_status.stdout) == (3, "")
    assert "is not running" in shell_status.stderr
    assert json.loads(stack.command("down", "--json").stdout)["was_running"] is False


def test_pressroom_reset_deletes_only_files_of_the_devstack(tmp_path: Path) -> None:
    stack = stack_at(tmp_path)
    (tmp_path / "novel.txt").write_text("mine")
    for name in ("postgres", "s3", "valkey", "logs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_text("")
    (tmp_path / "secrets.json").write_text("{}")
    assert stack.command("reset").returncode != 0  # The command asks for confirmation.
    assert (tmp_path / "postgres").exists()
    assert stack.command("reset", "--yes").returncode == 0
    assert (tmp_path / "novel.txt").read_text() == "mine"
    remaining_files = {path.name for path in tmp_path.iterdir()}
    assert remaining_files == {"novel.txt", "supervisor.lock", "services.lock"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_error_for_devstack_home_of_another_user_names_its_path(
    ordinary_user: OrdinaryUser,
) -> None:
    completed = ordinary_user.run_python("-m", "devstack", PRESSROOM_HOME="/usr/pressroom")
    assert completed.returncode == 2
    assert "/usr/pressroom" in completed.stderr
    assert "Traceback" not in completed.stderr
