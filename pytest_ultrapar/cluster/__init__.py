"""Many machines, one budget: limits divided between the hosts that share keys."""
