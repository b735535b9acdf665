"""What the sweep, the API and the outbox send is what the workers know."""

import importlib
import pkgutil

import services
from services.jobs import kinds, upkeep
from tests.probe.kind import BRIEF, PROBES
from tests.probe.tending import TEND
from workers.tasks.table import TASKS


def test_every_kind_of_job_has_a_task_and_every_task_of_a_job_a_kind() -> None:
    # A kind registered in a module that no task needs is found too.
    for module in pkgutil.walk_packages(services.__path__, "services."):
        importlib.import_module(module.name)
    assert set(TASKS.jobs) == kinds.registered() - {*PROBES.values(), BRIEF}


def test_every_kind_of_upkeep_has_a_task() -> None:
    assert set(TASKS.upkeep) == upkeep.registered() - {TEND}


def test_no_name_is_of_two_tasks() -> None:
    names = [kind.name for kind in TASKS.jobs] + [kind.name for kind in TASKS.upkeep]
    names += [kind.task for kind in TASKS.requests]
    assert len(names) == len(set(names))
