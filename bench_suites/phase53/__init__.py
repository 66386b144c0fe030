"""Phase 5.3: what a flaw in the plan does to a model."""
