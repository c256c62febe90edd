"""What code outside this package may rely on: runtime providers now, modules later."""
