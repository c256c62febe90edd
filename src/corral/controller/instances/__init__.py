"""Runs of instances: decided, ordered, reported, ended."""
