"""The wire formats of providers' APIs: requests, answers, streams, failures.

`registry.py` lists the APIs and their interface. `openai.py` is the simplest; the others translate
chat completions (`translation.py`). Every API's answer becomes a `Reply` (`reply.py`).
`classify.py` finds the class of a failure, from the servers' words in `vocabulary.toml`;
`failure_classes.py` has a row with the consequences of each class. `request.py` reads the load of a
request of any API, and `as_chat.py` its messages, for people.
"""
