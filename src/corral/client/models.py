"""The structures of answers and requests, all under one name."""

from corral.client.generated.models import *  # noqa: F403 - it lists what it has
from corral.client.generated.models import __all__ as __all__
