"""Planning: how many answers an accuracy takes, and what they cost."""
