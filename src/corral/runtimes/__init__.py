"""Ways to run an instance, all behind `corral.sdk.runtime`."""
