"""The HTTP side of the service: endpoints, who may use them, and what guards them."""
