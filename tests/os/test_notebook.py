from __future__ import annotations

import builtins
import sys
import types

import pytest

from determined._os.notebook import in_ipython


def test_only_a_running_ipython_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    assert not in_ipython()
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    assert in_ipython()
