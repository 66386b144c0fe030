"""What the APIs of providers say on the wire: requests, answers, streams, failures.

`registry.py` names the APIs and says what is asked of one. `openai.py` is the plainest; the
others translate chat completions (`translation.py`). `reply.py` is what every API's answer
becomes, `classify.py` tells of what class a failure is, by the words of servers that
`vocabulary.toml` lists, and what follows from it is a row of `failure_classes.py`. `request.py` is
what a request asks for, whatever its API; `as_chat.py` what it says, for people.
"""
