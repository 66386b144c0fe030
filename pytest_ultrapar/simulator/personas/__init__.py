"""Simulated models that solve the workflow suites by reading the conversation."""
