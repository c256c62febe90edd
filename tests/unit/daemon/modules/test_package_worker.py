"""The worker of one module logs with the id of the request behind each order, also when the order fails."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from corral.daemon.modules.convergence import Convergence
from corral.daemon.modules.module_orders import ReceivedOrder
from corral.daemon.modules.package_worker import PackageWorker
from corral.errors import Code, CorralError, Retryable
from corral.system import log_context
from corral.system.entropy import SystemEntropy


class Orders:
    """Stands for the convergence: notes the request that is bound at each order, and fails those in `failing` once."""

    def __init__(self, *failing: Exception) -> None:
        self.failing = list(failing)
        self.requests: list[str] = []

    async def converge(self, id: str, order: ReceivedOrder, obtain: Any) -> None:
        del id, order, obtain
        await asyncio.sleep(0)
        self.requests.append(log_context.bound_request())
        if self.failing:
            raise self.failing.pop(0)


async def carry_out(orders: Orders, *received: ReceivedOrder) -> list[str]:
    """Give a worker these orders one after the other, each when it rests; the requests bound at each rest."""
    rested: list[str] = []
    idle = asyncio.Event()

    def rest(id: str, error: CorralError | None) -> None:
        del id, error
        rested.append(log_context.bound_request())

    worker = PackageWorker(
        "guard", cast("Convergence", orders), entropy=SystemEntropy(), rested=rest, idle=idle.set
    )
    for order in received:
        idle.clear()
        worker.submit(order)
        async with asyncio.timeout(20):
            await idle.wait()
    await worker.close()
    return rested


async def test_an_order_that_is_retried_is_logged_with_its_request() -> None:
    orders = Orders(Retryable(Code.UNREACHABLE, "the link was lost", retry_after=0.01))
    with capture_logs(processors=[merge_contextvars]) as logged, log_context.bound(request="req-other"):
        rested = await carry_out(orders, ReceivedOrder(request="req-1"))
    assert orders.requests == ["req-1", "req-1"]
    assert rested == ["req-1", "req-1"]
    (retried,) = [record for record in logged if record["event"] == "convergence.retried"]
    assert (retried["request"], retried["module"]) == ("req-1", "guard")


async def test_an_order_that_fails_is_logged_with_its_request() -> None:
    orders = Orders(ZeroDivisionError("a bug"))
    with capture_logs(processors=[merge_contextvars]) as logged:
        await carry_out(orders, ReceivedOrder(request="req-1"))
    (failed,) = [record for record in logged if record["event"] == "convergence.failed"]
    assert failed["request"] == "req-1"


async def test_each_order_has_its_own_request_and_none_stays() -> None:
    orders = Orders()
    await carry_out(orders, ReceivedOrder(request="req-1"), ReceivedOrder(), ReceivedOrder(request="req-2"))
    assert orders.requests == ["req-1", "", "req-2"]
    assert log_context.bound_ids() == {}
