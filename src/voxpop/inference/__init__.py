"""How it is computed: messages between tasks and workers, and the kernels that compute them."""
