"""Tests that the Kubernetes manifests confine pods, containers and network traffic."""

from typing import Any

import pytest

from tests.support.deployment import files, pods

pytestmark = pytest.mark.tier("check")

WORKERS = {f"pressroom-worker-{kind}" for kind in ("waiting", "media", "computing")}


def policies() -> dict[str, dict[str, Any]]:
    return {name: each["spec"] for name, each in pods.resources_of_kind("NetworkPolicy").items()}


def find_selected_workloads(selector: dict[str, Any]) -> set[str]:
    """Return the names of the workloads whose pods match a selector."""
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    return {
        name
        for name, each in (pods.workloads() | pods.job_templates()).items()
        if selector.get("matchLabels", {}).items() <= pods.labels_of(each).items()
        and all(
            _matches(expression, pods.labels_of(each))
            for expression in selector.get("matchExpressions", [])
        )
    }


def _matches(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    assert expression["operator"] == "In"
    return labels.get(expression["key"]) in expression["values"]


def test_kubernetes_pods_are_restricted_and_have_bounded_volumes() -> None:
    labels = pods.resources_of_kind("Namespace")["pressroom"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for name, workload in pods.workloads().items():
        pod = pods.pod_of(workload)
        assert pod["automountServiceAccountToken"] is False, name
        # With service links, Kubernetes would set variables such as PRESSROOM_API_SERVICE_HOST,
        # which look like Pressroom's settings.
        assert pod["enableServiceLinks"] is False, name
        security = pod["securityContext"]
        user = next(each.text for each in files.dockerfile() if each.name == "USER")
        assert f"{security['runAsUser']}:{security['runAsGroup']}" == user
        assert security["runAsNonRoot"] is True
        # The seccomp profile ``RuntimeDefault`` lets the image converter load its own, stricter
        # filter: see docs/decisions/0018-confined-decoding.md.
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        assert all(volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"]), name


def test_kubernetes_containers_have_no_capabilities_and_limited_resources() -> None:
    for process in pods.processes():
        assert process.container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        resources = process.container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys(), process
        assert resources["limits"]["memory"], process
        mounted = {each["mountPath"]: each["name"] for each in process.container["volumeMounts"]}
        assert mounted["/tmp"] == "tmp"
        assert set(mounted) <= {"/tmp", "/scratch"}
        scratch = [each for each in process.container["env"] if each["name"] == "SQLITE_TMPDIR"]
        assert ("/scratch" in mounted) == bool(scratch)


def test_network_policies_deny_all_traffic_by_default() -> None:
    assert policies()["pressroom-nothing"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }
    for name, policy in policies().items():
        assert find_selected_workloads(policy["podSelector"]), name
        for rule in [*policy.get("ingress", []), *policy.get("egress", [])]:
            assert rule["ports"], name
            assert rule.get("from") or rule.get("to"), name


def test_network_policies_allow_internet_access_only_where_needed() -> None:
    workloads_with_internet = set()
    reachable_ports = set()
    for name, policy in policies().items():
        workloads = find_selected_workloads(policy["podSelector"])
        for peer in (each for rule in policy.get("egress", []) for each in rule["to"]):
            block = peer.get("ipBlock", {})
            if block.get("cidr") in {"0.0.0.0/0", "::/0"}:
                workloads_with_internet |= workloads
            if block.get("cidr") == "0.0.0.0/0":
                # 169.254.0.0/16 contains the metadata service of cloud providers, which hands out
                # the credentials of the Kubernetes node.
                assert "169.254.0.0/16" in block["except"], name
        for port in (each for rule in policy.get("ingress", []) for each in rule["ports"]):
            reachable_ports |= {(workload, port["port"]) for workload in workloads}
    # The job that verifies backups needs internet access, because the bucket of the backups should
    # be at another provider.
    assert workloads_with_internet == {
        "pressroom-api",
        "pressroom-worker-waiting",
        "pressroom-verify-backups",
    }
    assert reachable_ports == {("pressroom-api", "http"), *((each, "metrics") for each in WORKERS)}


def test_pod_monitor_scrapes_every_worker_at_its_metrics_port() -> None:
    [monitor] = pods.resources_of_kind("PodMonitor").values()
    workloads = find_selected_workloads(monitor["spec"]["selector"])
    assert workloads == WORKERS
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    for name in workloads:
        [container] = pods.pod_of(pods.workloads()[name])["containers"]
        [port] = container["ports"]
        assert endpoint["port"] == port["name"] == "metrics"
        [address] = [
            each["value"]
            for each in container["env"]
            if each["name"] == "PRESSROOM_WORKER_METRICS_ADDRESS"
        ]
        assert address == f"0.0.0.0:{port['containerPort']}"


def test_service_and_service_monitor_select_the_api() -> None:
    [service] = pods.resources_of_kind("Service").values()
    assert find_selected_workloads({"matchLabels": service["spec"]["selector"]}) == {
        "pressroom-api"
    }
    [monitor] = pods.resources_of_kind("ServiceMonitor").values()
    labels = monitor["spec"]["selector"]["matchLabels"]
    assert labels.items() <= service["metadata"]["labels"].items()
    ports = {each["name"] for each in service["spec"]["ports"]}
    assert {each["port"] for each in monitor["spec"]["endpoints"]} <= ports
    [port] = service["spec"]["ports"]
    [container] = pods.pod_of(pods.workloads()["pressroom-api"])["containers"]
    assert port["targetPort"] in {each["name"] for each in container["ports"]}


@pytest.mark.parametrize("name", pods.resources_of_kind("Deployment"))
def test_kubernetes_deployments_lose_at_most_one_pod_and_spread_over_zones(name: str) -> None:
    deployment: pods.Resource = pods.resources_of_kind("Deployment")[name]
    selector = deployment["spec"]["selector"]
    assert find_selected_workloads(selector) == {name}
    budgets = [
        each["spec"]
        for each in pods.resources_of_kind("PodDisruptionBudget").values()
        if each["spec"]["selector"] == selector
    ]
    assert [each["maxUnavailable"] for each in budgets] == [1]
    spread = pods.pod_of(deployment)["topologySpreadConstraints"]
    assert {each["topologyKey"] for each in spread} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    assert all(each["labelSelector"] == selector for each in spread)
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
