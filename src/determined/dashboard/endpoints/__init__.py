"""How an endpoint is declared, checked, answered and described.

The endpoints themselves are in `api`. Read `endpoints.py` first; `parameters.py` has the types of
what is sent, `answers.py` those of what is shared by answers.
"""
