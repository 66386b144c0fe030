"""The wire formats of providers' APIs: requests, answers, streams, failures.

`registry.py` lists the APIs and defines their interface. `openai.py` is the simplest; the others
translate chat completions (`translation.py`). Every API's answer becomes a `Reply` (`reply.py`).
`classify.py` finds the class of a failure with the wordings of servers in `vocabulary.toml`;
`failure_classes.py` lists the consequences of each class. `request.py` reads the load of a request
to any API, and `as_chat.py` makes its messages readable.
"""
