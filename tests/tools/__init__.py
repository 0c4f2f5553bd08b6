"""Tests of what writes pages and pictures."""
