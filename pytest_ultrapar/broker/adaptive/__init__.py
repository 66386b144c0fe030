"""Adaptive mode: finding the limits of a provider that does not state them."""
