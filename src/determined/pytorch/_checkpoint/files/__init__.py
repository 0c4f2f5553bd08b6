"""The files of a checkpoint: written as plain values, read without trusting them."""
