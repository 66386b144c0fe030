"""What there is to run on: `pool.toml` as validated, immutable data."""
