"""The dashboard under load: homes made without training, and how fast they are shown."""
