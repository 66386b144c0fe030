"""A run from its start to its end: plan, policies, dispatch, services, progress, summary."""
