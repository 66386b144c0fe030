"""`ultrapar gateway`: the gateway without pytest, for other harnesses."""
