"""Phase 5.3."""
