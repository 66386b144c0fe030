"""Cases that measure the tool and nothing else."""
