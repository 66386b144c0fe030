"""The gateway alone, for harnesses that are not pytest: `ultrapar gateway`."""
