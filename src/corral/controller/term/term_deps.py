"""What a term is given to lead with: the epoch it was elected under, and what the controller has whoever leads."""

from __future__ import annotations

from dataclasses import dataclass, field

from corral.controller.http.setting import ClusterControl, Setting
from corral.domain.ids import Epoch
from corral.signing import Verifier
from corral.store.port import Store
from corral.system.clock import Clock
from corral.system.config_schema import ControllerConfig
from corral.system.entropy import Entropy


@dataclass(frozen=True, kw_only=True)
class Mandate:
    """Only for those who put a term together; its parts get what they use, each by itself."""

    epoch: Epoch
    holder: str
    config: ControllerConfig
    store: Store
    setting: Setting
    cluster: ClusterControl
    verifier: Verifier
    clock: Clock
    entropy: Entropy
    api_url: str = ""
    """Where instances reach the API."""
    found_cluster: bool = False
    """Make a new cluster also where there was one."""
    ahead_of_store: set[str] = field(default_factory=set)
    """Nodes that know of confirmations which the store has lost; of all terms of this process."""
