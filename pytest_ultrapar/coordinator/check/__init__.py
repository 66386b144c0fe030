"""Check which of a pool's lanes answer: `ultrapar check`, or `--ultrapar-check` before a run."""
