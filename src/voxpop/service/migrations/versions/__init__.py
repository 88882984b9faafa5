"""The steps, oldest first. A step is never changed once it has been released."""
