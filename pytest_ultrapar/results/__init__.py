"""What a run leaves behind: journals, tables, statistics and the benchmark JSON."""
