"""Restarts by hand of what is stopping."""

from __future__ import annotations

import pytest
from test_scaled_groups import Scene
from world import spec

from corral.controller.instances.group_changes import create_group
from corral.controller.instances.instance_changes import restart_instance, start_instance, stop_instance
from corral.errors import Code, Rejected


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_restart_brings_back_what_is_stopping_only_below_max(scene):
    scene.do(create_group, spec(min=1, max=2))
    scene.pass_time(0)
    scene.do(start_instance, "lobby")
    scene.run_all()
    scene.do(stop_instance, "lobby-2", reason="")
    scene.do(restart_instance, "lobby-2", reason="")
    assert scene.group().target == 2
    scene.do(stop_instance, "lobby-2", reason="")
    scene.do(start_instance, "lobby")
    with pytest.raises(Rejected) as caught:
        scene.do(restart_instance, "lobby-2", reason="")
    assert caught.value.code is Code.GROUP_FULL
