"""Leading a run: its plan, its workers and services, what is shown of it, and its end."""
