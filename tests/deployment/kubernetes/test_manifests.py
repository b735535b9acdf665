import kubernetes_validate
import pytest
import yaml

from tests.support.deployment.pods import FOLDER, Resource, render_example

pytestmark = pytest.mark.tier("check")

# The oldest Kubernetes version that docs/kubernetes.md allows, and the newest one with a published
# schema.
VERSIONS = ("1.30", kubernetes_validate.latest_version())


def name_of(resource: Resource) -> str:
    return f"{resource['kind']}-{resource['metadata']['name']}"


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_manifests_are_valid_for_supported_versions(version: str) -> None:
    for resource in render_example():
        is_custom = "." in resource["apiVersion"].partition("/")[0].replace(".k8s.io", "")
        if not is_custom:
            kubernetes_validate.validate(resource, version, strict=True)


def test_kustomize_example_includes_every_file_and_each_resource_once() -> None:
    overlay = yaml.safe_load((FOLDER / "overlays/example/kustomization.yaml").read_text())
    folders = {f"../../components/{each.name}" for each in (FOLDER / "components").iterdir()}
    assert folders == set(overlay["components"])
    for file in FOLDER.rglob("*.*"):
        if file.name != "kustomization.yaml":
            folder = file.parent.parent if file.suffix == ".env" else file.parent
            kustomization = (folder / "kustomization.yaml").read_text()
            assert str(file.relative_to(folder)) in kustomization, file
    names = [name_of(each) for each in render_example()]
    assert len(names) == len(set(names))
    namespaces = {
        each["metadata"].get("namespace")
        for each in render_example()
        if each["kind"] != "Namespace"
    }
    assert namespaces == {"pressroom"}
