"""Prefetching: episodes on one loop in a thread of their own."""
