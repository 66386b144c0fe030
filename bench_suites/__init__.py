"""Benchmark suites that run on pytest-ultrapar."""
