"""How pictures are drawn: the house style, scenes, one rollout."""
