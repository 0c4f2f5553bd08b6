"""What the callbacks for other people's training loops share: stopping, resuming, saving.

Not here: anything that knows one of these loops (`determined.transformers`,
`determined.lightning`). Read `stopping.py` first.
"""
