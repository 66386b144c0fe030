"""Adaptive mode: estimates the limits of a provider that does not publish them."""
