"""What ours is compared with: each method one file, readable alone beside the paper it comes from."""
