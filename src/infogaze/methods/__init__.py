"""Every method: ours, its ablations, the baselines and two bounds."""
