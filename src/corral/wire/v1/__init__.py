"""Generated from proto/corral/v1 by tools/generate_wire.py; do not edit."""
