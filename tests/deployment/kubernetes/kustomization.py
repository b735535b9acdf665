"""What `kustomize build` makes of a folder: as much of it as our folders use.

Anything else that a file asks for is an error. Names of generated ConfigMaps get no hash here.
"""

import copy
from pathlib import Path
from typing import Any

import yaml

from tests.deployment import files

FOLDER = files.ROOT / "deploy" / "kubernetes"

Resource = dict[str, Any]

_KNOWN = {
    *("apiVersion", "kind", "namespace", "resources", "components"),
    *("configMapGenerator", "images", "patches"),
}


def built(folder: Path) -> list[Resource]:
    return _added(folder, [])


def settings_in(file: Path) -> dict[str, str | None]:
    """The settings of a file for a generator; `None` for one that is commented out."""
    found: dict[str, str | None] = {}
    for line in file.read_text().splitlines():
        name, given, value = line.removeprefix("#").partition("=")
        if name.startswith("PRESSROOM_"):
            found[name] = value if given and not line.startswith("#") else None
    return found


def _added(folder: Path, resources: list[Resource]) -> list[Resource]:
    asked = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert asked.keys() <= _KNOWN, asked.keys() - _KNOWN
    for each in asked.get("resources", []):
        path = folder / each
        resources += built(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    for generator in asked.get("configMapGenerator", []):
        _generate(folder, generator, resources)
    for each in asked.get("components", []):
        _added(folder / each, resources)
    for patch in asked.get("patches", []):
        [target] = [each for each in resources if _fits(each, patch["target"])]
        for operation in yaml.safe_load(patch["patch"]):
            _change(target, operation)
    for resource in resources:
        _settle(resource, asked)
    return resources


def _settle(resource: Resource, asked: dict[str, Any]) -> None:
    """Put the resource into its namespace, and its containers' image into its registry."""
    if "namespace" in asked and resource["kind"] != "Namespace":
        resource["metadata"]["namespace"] = asked["namespace"]
    image_names = {each["name"]: each for each in asked.get("images", [])}
    for container in containers_of(resource):
        if new := image_names.get(container["image"]):
            container["image"] = f"{new['newName']}:{new['newTag']}"


def _generate(folder: Path, generator: dict[str, Any], resources: list[Resource]) -> None:
    assert generator.keys() <= {"name", "behavior", "envs", "literals"}, generator
    lines = [tuple(each.split("=", 1)) for each in generator.get("literals", [])]
    for file in generator.get("envs", []):
        given = settings_in(folder / file)
        lines += [(name, value) for name, value in given.items() if value is not None]
    data = dict(lines)
    if generator.get("behavior") == "merge":
        target = {"kind": "ConfigMap", "name": generator["name"]}
        [found] = [each for each in resources if _fits(each, target)]
        found["data"] |= data
    else:
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}}
        resources.append({**head, "data": data})


def _fits(resource: Resource, target: dict[str, str]) -> bool:
    return (resource["kind"], resource["metadata"]["name"]) == (target["kind"], target["name"])


def _change(resource: Resource, operation: dict[str, Any]) -> None:
    *path, last = operation["path"].strip("/").split("/")
    place: Any = resource
    for step in path:
        place = place[int(step) if isinstance(place, list) else step]
    match operation["op"]:
        case "remove":
            del place[last]
        case "replace":
            assert last in place, operation
            place[last] = copy.deepcopy(operation["value"])
        case other:
            raise AssertionError(other)


def containers_of(resource: Resource) -> list[dict[str, Any]]:
    if resource["kind"] not in {"Deployment", "Job", "CronJob"}:
        return []
    workload = resource["spec"].get("jobTemplate", resource)
    pod = workload["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]
