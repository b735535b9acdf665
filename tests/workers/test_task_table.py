"""Tests that workers have a Celery task for each kind of job, maintenance task and request."""

import json
import pkgutil
import subprocess
import sys

import pytest
from celery import Celery

import services
from core.queues import Queue
from devstack.harness.stack import Stack
from services.jobs import maintenance
from services.jobs.kinds import list_kinds, list_request_work
from workers import task_table
from workers.context import ProcessContext
from workers.serving import plan_serving

# A program that imports the modules in its arguments. The program prints the names of all kinds of
# jobs, maintenance tasks and requests that the imported modules register.
PRINT_NAMES = """
import importlib, json, sys
from services.jobs import maintenance
from services.jobs.kinds import list_kinds, list_request_work
for name in sys.argv[1:]:
    importlib.import_module(name)
names = [kind.name for kind in (*list_kinds(), *maintenance.list_kinds())]
print(json.dumps(sorted(names + [kind.task for kind in list_request_work()])))
"""


def _registered_by(*modules: str) -> list[str]:
    argv = [sys.executable, "-c", PRINT_NAMES, *modules]
    return list(json.loads(subprocess.run(argv, check=True, capture_output=True).stdout))


@pytest.mark.slow
def test_task_table_loads_every_registered_kind_under_a_unique_name() -> None:
    # Import all modules of `services`, to detect modules that register kinds of work, but that
    # ``workers.task_table`` doesn't import.
    all_modules = [module.name for module in pkgutil.walk_packages(services.__path__, "services.")]
    names = _registered_by("workers.task_table")
    assert names == _registered_by(*all_modules)
    assert len(names) == len(set(names)) > 30


def test_each_registered_job_kind_has_a_celery_task(stack: Stack) -> None:
    app = Celery()
    task_table.register_tasks(
        app, ProcessContext(stack.resources.settings, plan_serving([Queue.BULK]))
    )
    names = {kind.name for kind in list_kinds()}
    names |= {kind.name for kind in maintenance.list_kinds()}
    names |= {kind.task for kind in list_request_work()}
    assert names <= set(app.tasks)
