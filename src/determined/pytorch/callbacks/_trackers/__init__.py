"""Callbacks that hand every report to another system."""
