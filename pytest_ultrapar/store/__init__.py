"""What a run leaves behind: journal, tables, manifest, run directory."""
