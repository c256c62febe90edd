"""The suite lives in the package, for other runtimes to join; its assertions speak all the same."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("corral.testing.runtime_contract")
