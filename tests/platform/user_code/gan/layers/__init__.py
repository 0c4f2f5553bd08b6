from .nets import mlp as mlp
