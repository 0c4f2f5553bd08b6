"""The JSON API, one module per subject. Each declares its endpoints; `app.py` collects them."""
