"""In which order modules are taken down: nobody loses what he depends on while he is being stopped."""

from __future__ import annotations

from collections.abc import Mapping

from corral.domain.module_manifest import Manifest


def stages_of_end(manifests: Mapping[str, Manifest]) -> list[list[str]]:
    """Modules by id, in stages: all consumers of a module stand in an earlier stage than it does. Modules
    that need each other, which an installation refuses, would share the last stage."""
    providers = {
        provision.id: id for id, manifest in manifests.items() for provision in manifest.capabilities.provides
    }
    needs = {
        id: {
            providers[requirement.id]
            for requirement in manifest.capabilities.requires
            if requirement.id in providers and providers[requirement.id] != id
        }
        for id, manifest in manifests.items()
    }
    stages: list[list[str]] = []
    left = dict(needs)
    while left:
        needed = {provider for wanted in left.values() for provider in wanted}
        stage = sorted(id for id in left if id not in needed) or sorted(left)
        stages.append(stage)
        left = {id: wanted for id, wanted in left.items() if id not in stage}
    return stages
