"""Generated from the route table of the API by tools/generate_client.py; do not edit."""
