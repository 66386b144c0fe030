"""What people read while a run goes on and when it is over."""
