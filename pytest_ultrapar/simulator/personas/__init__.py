"""Simulated models that work through the workflow suites by reading what they are told."""
