"""The pytest plugin: options and registration only."""
