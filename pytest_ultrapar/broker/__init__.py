"""Who may send what, where and when: the broker, the only owner of all limits."""
