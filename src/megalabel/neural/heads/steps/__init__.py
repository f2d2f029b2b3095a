"""How the weights of a dense head move: in plain torch, or by kernels."""
