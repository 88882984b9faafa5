"""The pages: what workers and the owner see in a browser."""
