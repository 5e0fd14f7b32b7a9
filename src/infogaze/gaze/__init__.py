"""What a user drives: sensors, policies, stop rules, agents and episodes."""
