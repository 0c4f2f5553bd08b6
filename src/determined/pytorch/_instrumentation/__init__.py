"""How tools see and steer a user's script from inside `init` and `fit`, without a change to it.

`observer.py` sees the parts of a fit, `overrides.py` replaces its arguments. Not here: the tools
themselves, such as the time profile (`_display/profile.py`) and `verify_resume/`.
"""
