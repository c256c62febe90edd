"""TLS: the authority that was named is trusted, and no other."""

from __future__ import annotations

import pytest
from callers import calling

from corral.client import Retry, Unreachable


async def test_a_controller_is_trusted_by_its_authority_alone(kind, cluster, tmp_path):
    controller = await cluster.controller(http__tls__mode="cluster")
    other = await cluster.controller("other", http__tls__mode="cluster")
    token = controller.admin_token
    assert controller.url.startswith("https://")
    authority, wrong = controller.app.config.authority_path, other.app.config.authority_path
    async with calling(kind, controller.url, token=token, ca_file=authority) as caller:
        assert (await caller.call(lambda corral: corral.cluster.get())).leader
    for ca_file in (wrong, None):
        async with calling(
            kind, controller.url, token=token, ca_file=ca_file, retry=Retry(attempts=1)
        ) as caller:
            with pytest.raises(Unreachable, match="cannot trust") as lost:
                await caller.call(lambda corral: corral.cluster.get())
        assert "ca_file" in lost.value.hint
        assert not lost.value.in_doubt
        assert token not in str(lost.value)


async def test_plain_and_encrypted_ports_are_told_apart(kind, controller):
    wrong = controller.url.replace("http://", "https://")
    async with calling(kind, wrong, retry=Retry(attempts=1)) as caller:
        with pytest.raises(Unreachable):
            await caller.call(lambda corral: corral.probes.health())
