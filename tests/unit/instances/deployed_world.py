"""A `ReconciledWorld` with a group that is deployed: nodes do what is ordered, and time passes."""

from __future__ import annotations

from typing import Any

from reconciled_world import ReconciledWorld

from corral.controller.instances import deployments, group_changes
from corral.controller.instances.plan_view import WorkspaceView
from corral.domain.groups.deployments import DeploymentRecord, DeploymentState
from corral.domain.groups.instance_records import InstanceRecord, is_present, live
from corral.domain.groups.update_spec import UpdateSpec
from corral.domain.ids import NodeId
from corral.domain.planning.rollout_members import DeploymentProgress

S = DeploymentState


class DeployedWorld(ReconciledWorld):
    """Group `lobby` with some instances of revision 1, all healthy; other nodes take more of them."""

    def __init__(
        self, count: int = 3, *, nodes: int = 4, update: dict[str, Any] | None = None, **fields: Any
    ) -> None:
        super().__init__()
        for number in range(3, nodes + 1):
            self.add_node(NodeId(f"n{number}"))
            self.connected.add(f"n{number}")
        spec = UpdateSpec(**(update or {}))
        self.create("lobby", **{"min": count, "memory_mb": 100, "update": spec, **fields})
        self.live_on(20)

    def edit(self, **fields: Any) -> None:
        self.ask(group_changes.patch_group, "lobby", fields)

    def deploy(self, **options: Any) -> DeploymentRecord:
        """Change the document, and deploy it."""
        self.edit(env={"NUMBER": str(len(self.events))})
        return self.deploy_again(**options)

    def deploy_again(self, **options: Any) -> DeploymentRecord:
        return self.do_as(deployments.deploy_group, "lobby", by="ada", options=options)

    def do_as(self, change: Any, *args: Any, **named: Any) -> DeploymentRecord:
        request = f"req-{len(self.requests) + 1}"
        self.requests.add(request)
        ws = self.workspace("token:ada", request)
        found: DeploymentRecord = change(ws, *args, **named)
        self.apply(ws.steps())
        return found

    @property
    def deployment(self) -> DeploymentRecord:
        """The last deployment."""
        return self.state.deployments.of_group("lobby")[0].record

    @property
    def state_now(self) -> DeploymentState:
        return self.deployment.state

    def there(self, revision: int | None = None) -> list[InstanceRecord]:
        """The instances that serve, of a revision or all, in the order of their starts."""
        found = (each.record for each in self.state.instances.of_group("lobby"))
        serving = [each for each in found if is_present(each) and not each.warm]
        chosen = [each for each in serving if revision is None or each.revision == revision]
        return sorted(chosen, key=lambda each: each.incarnation)

    def alive(self) -> list[InstanceRecord]:
        found = (each.record for each in self.state.instances.of_group("lobby"))
        return sorted((each for each in found if live(each.state)), key=lambda each: each.incarnation)

    def revisions(self) -> list[int]:
        return sorted(each.revision for each in self.there())

    def until(self, state: DeploymentState, *, within: float = 300, step: float = 1.0) -> None:
        """Let time pass until the deployment is in a state."""
        passed = 0.0
        while self.state_now is not state:
            assert passed < within, f"{self.state_now}: {self.deployment.waiting}"
            self.live_on(step)
            passed += step

    @property
    def progress(self) -> DeploymentProgress:
        view = WorkspaceView(self.workspace(), self.signals_of_term.now())
        return deployments.deployment_progress_of(view, self.deployment)

    def until_updated(self, count: int) -> None:
        """Let time pass until so many instances are of the target and healthy."""
        while self.progress.updated < count:
            assert self.deployment.active, self.deployment
            self.live_on(0.5)

    def phases(self) -> list[str]:
        """The states that the last deployment has come to."""
        told = [each for each in self.events if each.subject == self.deployment.id]
        return [each.data["to"] for each in told if "to" in each.data]
