"""One script per library, all training the same: `python -m benchmarks.contenders.ours {}`."""
