"""Where the contexts of core send reports and read instructions; `backend.py` first."""
