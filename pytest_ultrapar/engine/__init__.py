"""The part that runs ahead: episodes on one loop in a thread of their own."""
