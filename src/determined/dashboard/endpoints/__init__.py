"""Declarations of endpoints: parameters, bodies, answers, and the schema made from them."""
