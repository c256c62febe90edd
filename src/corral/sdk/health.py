"""Health of a module, as it reports it."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True):
    """Result of `health_check`. A check that raises or takes too long counts as not healthy.

    ```python
    async def health_check(self) -> Health:
        return Health(self.connected, "" if self.connected else "the feed does not answer")
    ```
    """

    healthy: bool = True
    detail: str = ""
