"""Programs that measure the tool. Their figures are in docs/measurements.md."""
