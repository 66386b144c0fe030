"""What the APIs of providers say on the wire: requests, answers, streams, failures."""
