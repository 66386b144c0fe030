"""Programs that measure the tool itself, each with its figures in docs/measurements.md."""
