"""How it is worked out: messages between tasks and workers, and the kernels that compute them."""
